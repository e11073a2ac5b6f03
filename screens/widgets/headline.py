"""The headline of the arena screen: what is judged, and the answer in the largest letters on the screen."""

from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.renderables.digits import Digits
from textual.strip import Strip
from textual.widget import Widget

from arena.foreign_text import printable
from arena.run_state import RunState
from sandbox.verdict import Verdict
from screens import figures

HEIGHT = 3
BIG_SIGNS = {"✓": ("    ╱", "╲  ╱ ", " ╲╱  "), "✗": ("╲ ╱", " ╳ ", "╱ ╲")}
"""Signs as tall as the figures."""


@dataclass(frozen=True)
class Answer:
    """What the headline says: words, a big number, and one line of support."""

    words: str
    colour: str
    """Name of a theme colour."""
    big: str = ""
    """Drawn three rows high: a figure, or one of BIG_SIGNS."""
    sign: str = ""
    support: str = ""
    advice: str = ""


def answer_of(state: RunState, dirty: bool = False) -> Answer:
    """The answer for what is known so far."""
    if state.fatal is not None:
        return Answer(
            "! HARNESS ERROR",
            "warning",
            support=_line(state.fatal.message),
            advice="F10 doctor · F5 tries again",
        )
    if state.refused is not None:
        return Answer(
            "! NOT RUN", "warning", support=_line(state.refused.message), advice=_line(state.refused.advice)
        )
    if state.cancelled_in is not None:
        return Answer(
            "– CANCELLED", "muted", support=f"in {state.cancelled_in or 'the queue'}", advice="F5 runs again"
        )
    if not state.run_id:
        what = "ctrl+s saves and runs" if dirty else "F5 runs this kernel"
        return Answer("NOT RUN YET", "muted", support=what)
    verdict = state.verdict
    if verdict is None:
        return Answer(f"▸ {(state.phase or 'starting').upper()}", "accent", support="correctness comes first")
    if verdict is not Verdict.PASS:
        failure = state.failure
        where = _line(failure.message) if failure else ""
        return Answer(
            figures.verdict_words(verdict), figures.verdict_style(verdict),
            big="" if verdict is Verdict.HARNESS_ERROR else "✗", support=where,
            advice=_line(failure.advice) if failure else "",
        )  # fmt: skip
    speedup = state.speedup
    if speedup is None:
        support = "timing…" if state.running else "correct; not timed"
        return Answer("✓ PASS", "success", big="✓", support=support)
    outcome = (state.result.outcome if state.result else "") or figures.outcome_of(speedup)
    settled = "" if state.result else " so far"
    return Answer(
        f"✓ PASS  {figures.outcome_sign(outcome)} {outcome}{settled}", figures.outcome_style(outcome),
        big=f"{figures.factor(speedup.median)}x", sign=figures.outcome_sign(outcome),
        support=f"95 % {figures.interval_words(speedup)}",
        advice=_proofs(state),
    )  # fmt: skip


def waiting_answer(state: RunState, seconds: float) -> Answer:
    """While a run waits for its worlds: what is waited for, and since when."""
    return Answer("▸ WAITING", "accent", support=f"{worlds_words(state)} · {seconds:.0f} s")


def worlds_words(state: RunState) -> str:
    """The worlds in a few words: "worlds: baseline starting · spare ready"."""
    known = [f"{role} {world.state}" for role, world in state.worlds.items() if world.state != "gone"]
    return "worlds: " + " · ".join(known) if known else "the referee starts"


def _proofs(state: RunState) -> str:
    if state.result is None:
        return ""
    sealed = "sealed" if state.result.sealed else "not sealed"
    return f"{sealed} · jail {state.result.jail}"


def _line(text: str) -> str:
    return " ".join(printable(text).split())


def big_rows(text: str, style: Style) -> tuple[str, str, str]:
    """A figure or a sign in three rows."""
    if text in BIG_SIGNS:
        return BIG_SIGNS[text]
    lines = [*Segment.split_lines(part for part in Digits(text).render(style) if isinstance(part, Segment))]
    top, middle, bottom = ("".join(segment.text for segment in line) for line in lines[:HEIGHT])
    return top, middle, bottom


class Headline(Widget):
    """Three rows: problem and setting on the left, the answer on the right."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"headline--{name}"
        for name in ("title", "muted", "success", "error", "warning", "accent", "foreground")
    }

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title = ""
        self.meta = ""
        self.file = ""
        self.answer = Answer("NOT RUN YET", "muted")

    def show(self, answer: Answer, title: str, meta: str, file: str) -> None:
        """Draws again only when something changed."""
        if (answer, title, meta, file) != (self.answer, self.title, self.meta, self.file):
            self.answer, self.title, self.meta, self.file = answer, title, meta, file
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return HEIGHT

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        if width < 60:
            return self._narrow_line(y, width)
        right = self._answer_cells(y)
        right_width = sum(segment.cell_length for segment in right)
        left = (self.title, self.meta, self.file)[y] if y < HEIGHT else ""
        style = self.get_component_rich_style("headline--title" if y == 0 else "headline--muted")
        room = max(width - right_width - 2, 0)
        left_strip = Strip([Segment(left, style)]).adjust_cell_length(room, self.rich_style)
        return Strip([*left_strip, Segment("  ", self.rich_style), *right]).adjust_cell_length(
            width, self.rich_style
        )

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"headline--{name}")

    def _answer_cells(self, y: int) -> list[Segment]:
        """Row `y` of the answer, every row equally wide: words, support and advice beside the big number."""
        answer = self.answer
        room = max(20, int(self.content_size.width * (0.30 if answer.sign else 0.55)))
        rows = [(answer.words, answer.colour), (answer.support, "foreground"), (answer.advice, "muted")]
        text, colour = rows[y] if y < HEIGHT else ("", "muted")
        words = Strip([Segment(text, self._style(colour))])
        if words.cell_length > room:
            words = Strip([*words.crop(0, room - 1), Segment("…", self._style(colour))])
        pad = Segment(" " * (room - words.cell_length), self.rich_style)
        cells = [pad, *words]
        if answer.big:
            style = self._style(answer.colour)
            sign = f"   {answer.sign or ' '} " if y == 1 else "     "
            cells += [Segment(sign, style), Segment(big_rows(answer.big, style)[y], style)]
        return [*cells, Segment(" ", self.rich_style)]

    def _narrow_line(self, y: int, width: int) -> Strip:
        answer = self.answer
        number = f"  {answer.sign} {answer.big.replace('x', '×')}" if answer.sign else ""
        rows = [
            (f"{answer.words.partition('  ')[0]}{number}", answer.colour),
            (answer.support, "foreground"),
            (self.title, "muted"),
        ]
        text, colour = rows[y] if y < HEIGHT else ("", "muted")
        return Strip([Segment(text, self._style(colour))]).adjust_cell_length(width, self.rich_style)
