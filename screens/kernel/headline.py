"""The headline of the kernel screen: problem and setting, and the verdict in the largest letters on the screen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.renderables.digits import Digits
from textual.strip import Strip
from textual.widget import Widget

from arena.errors import ArenaError
from arena.machine.facts import isolation_words
from arena.records.ranking import Standing
from arena.records.run_record import RunRecord
from arena.runs.run_state import RunState
from arena.words.headline import TOO_NOISY, factor, outcome_words, single_calls_words
from arena.words.untrusted_text import one_line
from problems.specification import Problem
from sandbox.protocol.events import Setting
from sandbox.protocol.launch_plan import role_words
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import OTHER_PROGRAMS
from screens import figures
from screens.actions import key_of
from screens.kernel.run_update import failed_other

SINGLE = "batches of many calls looked faster; single calls do not confirm it"
WAITING = "Waiting: another run is timing"
SO_FAR = " so far"
MEASURING_ON = "measuring on"
HEIGHT = 3
GAP = 2
"""Columns between the left text and the answer."""
LEFT_LEAST = 3
"""Where both sides are too long, 1/LEFT_LEAST of the row stays for the left text."""
BIG_SIGNS = {"✓": ("    ╱", "╲  ╱ ", " ╲╱  "), "✗": ("╲ ╱", " ╳ ", "╱ ╲")}
"""Signs as tall as the figures."""
Part = tuple[str, str]
"""Text and the name of its theme colour."""


@dataclass(frozen=True)
class Answer:
    """The content of the headline: words, a big number, and two lines of support."""

    words: str
    colour: str
    """Name of a theme colour."""
    outcome: str = ""
    """The outcome of timing after the words: its sign, its words, and " so far"."""
    outcome_colour: str = ""
    """Name of the theme colour of the outcome and of the big figure; empty: `colour`."""
    big: str = ""
    """Drawn three rows high: a figure, or one of BIG_SIGNS."""
    sign: str = ""
    support: str = ""
    advice: str = ""
    asks: str = ""
    """The key to press now; it replaces the advice."""
    place: str = ""
    """Where a kernel failed. It replaces the line of support while a pane shows the message."""
    of: str = ""
    """Names the text that was judged, if it is not the text in the editor."""


OPENING = Answer("OPENING", "muted", support="reading earlier results")


def outdated(answer: Answer, of: str, key: str) -> Answer:
    """Returns the answer in muted colour with the name of the judged text. `key` runs the editor's text."""
    return replace(answer, colour="muted", outcome_colour="", of=f"of {of} · {key} runs this text")


def answer_of(state: RunState, keymap: dict[str, str], dirty: bool = False) -> Answer:
    """Returns the answer for the run's state. `keymap` holds the user's own keys."""
    run, save = key_of("run", keymap), key_of("save", keymap)
    again = f"{run} runs again"
    if state.fatal is not None:
        asks = f"{key_of('doctor', keymap)} doctor · {again}"
        return Answer("! HARNESS ERROR", "warning", support=one_line(state.fatal.message), asks=asks)
    if state.refused is not None:
        return Answer(
            "! NOT RUN", "warning", support=one_line(state.refused.message), advice=one_line(state.refused.advice)
        )
    if state.cancelled_in is not None and state.verdict is Verdict.PASS:
        return Answer("✓ PASS", "success", big="✓", support=f"not timed{figures.so_far_words(state)}", asks=again)
    if state.cancelled_in is not None:
        return Answer("– CANCELLED", "muted", support=f"in {state.cancelled_in or 'the queue'}", asks=again)
    if not state.run_id:
        what = f"{save} saves and runs" if dirty else f"{run} runs this kernel"
        return Answer("NOT RUN YET", "muted", asks=what)
    verdict = state.verdict
    if verdict is None:
        return Answer(f"▸ {(state.phase or 'starting').upper()}", "accent", support="correctness is checked first")
    if verdict is not Verdict.PASS:
        failure = state.failure
        where = one_line(failure.message) if failure else ""
        return Answer(
            figures.verdict_words(verdict), figures.verdict_style(verdict),
            big="" if verdict is Verdict.HARNESS_ERROR else "✗", support=where,
            place=figures.place_words(failure) if failure else "",
        )  # fmt: skip
    if (other := failed_other(state)) is not None:
        failed = figures.verdict_words(other.verdict)
        return Answer("✓ PASS", "success", big="✓", support=f"not timed; other kernel: {failed}")
    headline, told = state.headline, state.told
    said = headline.outcome if headline is not None else told.outcome if told is not None else ""
    if not said:
        if state.waiting is not None and state.running:
            return Answer("✓ PASS", "success", big="✓", support=WAITING, advice=one_line(state.waiting.words))
        return Answer("✓ PASS", "success", big="✓", support="not timed" if told is not None else "timing…")
    so_far = f" · {MEASURING_ON}" if state.measuring_on else "" if state.result else SO_FAR
    words = f"{figures.outcome_sign(said)} {outcome_words(said)}{so_far}"
    single = bool(state.result and single_calls_words(state.result.told))
    where = f"{headline.where}{', single calls' if single else ''}" if headline is not None else ""
    writable = "" if state.result is None or state.result.sealed else ", inputs writable"  # `doctor` names the profile
    advice = SINGLE if single else f"{isolation_words(state.result.jail)}{writable}" if state.result else ""
    if headline is None or said not in figures.CLEAR:  # a large figure would be read as the result
        busy = told is not None and OTHER_PROGRAMS in told.told
        do, action = ("End them, then run again", "run") if busy else ("Measure longer", "measure_on")
        asks = f"{do} ({key_of(action, keymap)})" if said == TOO_NOISY and state.result else ""
        speed = figures.measured_words(headline.speedup, said)[2:] if headline else reason(told.told) if told else ""
        return Answer(
            "✓ PASS", "success", words, figures.outcome_style(said),
            big="✓", support=f"{speed} {where}".rstrip(), advice=advice, asks=asks,
        )  # fmt: skip
    return Answer(
        "✓ PASS", "success", words, figures.outcome_style(said),
        big=f"{factor(headline.speedup.median)}x", sign=figures.outcome_sign(said),
        support=f"{figures.interval_words(headline.speedup)} {where}".rstrip(), advice=advice,
    )  # fmt: skip


def earlier_answer(record: RunRecord, key: str, sha256: str) -> Answer:
    """The answer of an earlier run of the same code in the same setting, muted, with its age. `key` runs it again.

    sha256: of the text in the editor, whose comments may differ.
    """
    same = "" if record.sha256 == sha256 else "same code "
    when = f"{same}at {figures.age_words(record.created)} · {key} runs it again"
    words = figures.verdict_words(record.verdict)
    if not record.outcome:
        support = "not timed" if record.passed else one_line(record.detail).partition(";")[0]
        return Answer(words, "muted", big="✓" if record.passed else "✗", support=support, of=when)
    said, sign, speed = record.outcome, figures.outcome_sign(record.outcome), record.interval
    noisy = speed is None or said not in figures.CLEAR  # a large figure would be read as the result
    big = "✓" if speed is None or noisy else f"{factor(speed.median)}x"
    support = figures.measured_words(speed, said, record.clock) if speed is not None else reason(record.told)
    return Answer(
        words, "muted", f"{sign} {outcome_words(said)}", "muted", big, "" if noisy else sign, support, of=when
    )


def reason(told: str) -> str:
    """Why nothing is claimed, without the figures behind it, which the table of times shows."""
    return one_line(told).partition(" (")[0]


def queued_answer(state: RunState, seconds: float) -> Answer:
    """The answer while a run waits for the earlier one to end, or for its processes to start."""
    why = "the earlier run ends first" if state.running else worlds_words(state)
    return Answer("▸ QUEUED", "accent", support=f"{why} · {seconds:.0f} s")


def worlds_words(state: RunState) -> str:
    """ "ready (oracle and spare processes started)", or what is still starting."""
    known = {role_words(role): world.state for role, world in state.worlds.items() if world.state != "gone"}
    starting = [role for role, found in known.items() if found != "ready"] if known else ["referee"]
    if starting:
        return f"starting: {_listed(starting)} process{'es' * (len(starting) > 1)}"
    return f"ready ({_listed(list(known))} process{'es' * (len(known) > 1)} started)"


def _listed(words: Sequence[str]) -> str:
    """ "baseline, spare and reference"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def big_rows(text: str, style: Style) -> tuple[str, str, str]:
    """A figure or a sign in three rows."""
    if text in BIG_SIGNS:
        return BIG_SIGNS[text]
    lines = [*Segment.split_lines(part for part in Digits(text).render(style) if isinstance(part, Segment))]
    top, middle, bottom = ("".join(segment.text for segment in line) for line in lines[:HEIGHT])
    return top, middle, bottom


class KernelHeadline(Widget):
    """Three rows: problem and setting on the left, the answer on the right."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"headline--{name}" for name in ("title", "muted", "success", "error", "warning", "accent", "foreground")
    }

    title = ""
    meta = ""
    file = ""
    answer = OPENING

    def show(self, answer: Answer, title: str, meta: str, file: str) -> None:
        """Draws again only when something changed."""
        if (answer, title, meta, file) != (self.answer, self.title, self.meta, self.file):
            self.answer, self.title, self.meta, self.file = answer, title, meta, file
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        if width < 60:
            return self._narrow_line(y, width)
        left = (self.title, self.meta, self.file)[y]
        big = self._big_cells(y)
        room = width - sum(segment.cell_length for segment in big) - GAP
        parts = self._fitted(self._rows()[y], room - min(cell_len(left), room // LEFT_LEAST))  # the answer has priority
        cells = sum(segment.cell_length for segment in parts)
        left = figures.cut(left, room - cells)
        pad = " " * (room + GAP - cell_len(left) - cells)
        style = self.get_component_rich_style("headline--title" if y == 0 else "headline--muted")
        row = [Segment(left, style), Segment(pad, self.rich_style), *parts, *big]
        return Strip(row).adjust_cell_length(width, self.rich_style)

    def _fitted(self, parts: list[Part], cells: int) -> list[Segment]:
        """Returns the parts of a row in at most `cells` cells, each in its colour."""
        row = []
        for text, colour in parts:
            row.append(Segment(figures.cut(text, cells), self._style(colour)))
            cells -= row[-1].cell_length
        return row

    def _rows(self) -> list[list[Part]]:
        """Words, support and advice, each in parts with their colours."""
        answer = self.answer
        support = "muted" if answer.of else "foreground"
        return [
            self._words(answer.outcome),
            [(answer.place or answer.support, support)],
            [(answer.of or answer.asks or answer.advice, "accent" if answer.of else "muted")],
        ]

    def _words(self, outcome: str) -> list[Part]:
        """The verdict, and an outcome in its own colour."""
        answer = self.answer
        verdict = (answer.words, answer.colour)
        return [verdict, (f"  {outcome}", answer.outcome_colour or answer.colour)] if outcome else [verdict]

    def _big_cells(self, y: int) -> list[Segment]:
        """Row `y` of the big number, with its sign."""
        answer = self.answer
        if not answer.big:
            return [Segment(" ", self.rich_style)]
        style = self._style((answer.outcome_colour if answer.sign else "") or answer.colour)
        sign = f"   {answer.sign or ' '} " if y == 1 else "     "
        return [Segment(sign, style), Segment(big_rows(answer.big, style)[y], style), Segment(" ", self.rich_style)]

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"headline--{name}")

    def _narrow_line(self, y: int, width: int) -> Strip:
        answer = self.answer
        number = f"{answer.sign} {answer.big.replace('x', '×')}{SO_FAR * answer.outcome.endswith(SO_FAR)}"
        problem = self.title.partition(" ")[0]
        rows = [
            self._words(number if answer.sign else answer.outcome),
            [(answer.place or answer.support or answer.asks, "foreground")],
            [(f"{answer.of} · problem {problem}", "accent") if answer.of else (self.title, "muted")],
        ]
        parts = self._fitted(rows[y], width)
        return Strip(parts).adjust_cell_length(width, self.rich_style)


def best_words(problem: Problem, standing: Standing | None, house: Standing | None, duel_key: str) -> str:
    """The user's best result, or the last one without a PASS; that of the house kernel; the category and collectives."""
    best = "not timed yet"
    if standing is not None:
        best = f"your {'best' if standing.solved else 'last'} {figures.standing_words(standing)[0]}"
        if standing.pooled > 1:  # the large figure is of the newest run alone
            best += f" in {standing.pooled} runs"
    against = f"{duel_key}: against the house" if duel_key else ""
    if house is not None:
        against = f"house {figures.standing_words(house)[0]}"
    return " · ".join(filter(None, [best, against, problem.category, ", ".join(problem.collectives)]))


def setting_words(setting: Setting | ArenaError) -> str:
    """ "tiny · bfloat16 · W=2 · cpu · M=256 N=64", or why nothing can be run."""
    if isinstance(setting, ArenaError):
        return f"! {setting.message}"
    sizes = " ".join(f"{name}={value}" for name, value in setting.sizes.items())
    return f"{figures.setting_words(setting)} · {sizes}"
