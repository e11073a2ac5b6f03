"""The duel: two panes, the race between them, the clock below. Live duels and replays share this screen."""

from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import ContentSwitcher

from arena.duel.card import svg_card, text_card
from arena.duel.events import SIDES, AnyDuelEvent, SideName, other
from arena.duel.state import DuelState
from arena.paths import writing
from arena.workspace.kernel_folder import shown_text
from screens import figures
from screens.actions import Scope
from screens.app_protocol import AppProtocol
from screens.base import BaseScreen
from screens.duel import words as duel_words
from screens.pane_jump import Stop
from screens.widgets.editor import Editor
from screens.widgets.key_line import FRAME, KeyLine, entitle
from screens.widgets.line_chart import NO_SPEEDUP, NO_VERDICT, ChartLine, LineChart, Point, verdict_point
from screens.widgets.source import SOURCE_STYLES, Source, Writing
from screens.widgets.text_lines import PlainStatic

_LEAST_SECONDS = 30.0
"""Least length of the x-axis of the race."""


def points_of(state: DuelState, name: SideName) -> tuple[Point, ...]:
    """Returns a player's kernels by the played second of their verdicts; for one that is being timed, its speedup so far."""
    found: list[Point] = []
    for attempt in state.side(name).attempts:
        if (judged := attempt.judged) is not None:
            found += verdict_point(state.clock(judged.at), attempt.passed, judged.speedup, judged.outcome)
        elif attempt.samples:
            last = attempt.samples[-1]
            found.append(Point(state.clock(last.at), last.speedup.median, last.speedup.low, last.speedup.high))
    return tuple(found)


REFRESH_S = 0.1
THREE_PANES = 200
"""Columns from which the race fits between the kernels."""
NOT_COUNTED = "leaves: the duel is not counted"
NARROW, WIDE = 100, 120
"""Columns from which the players' lines also name the clocks, and from which the score does."""


class DuelScreen(BaseScreen):
    """Shows a `DuelState`, which subclasses fill."""

    CSS_PATH: ClassVar[Any] = [SOURCE_STYLES, Path(__file__).with_name("duel.tcss")]
    SCOPE: ClassVar[Scope] = "duel"  # also the first word of the title
    PLACES: ClassVar[tuple[Stop, ...]] = (
        Stop("l", "#left-pane", "left"),
        Stop("a", "#race-pane", "race and attempts"),
        Stop("r", "#right-pane", "right"),
    )

    def __init__(self, parent_app: AppProtocol, state: DuelState, edits: SideName | None = None) -> None:
        """edits: the player whose pane is an editor."""
        super().__init__(parent_app)
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (24, "-high")]
        self.HORIZONTAL_BREAKPOINTS = [*(self.HORIZONTAL_BREAKPOINTS or ()), (THREE_PANES, "-broad")]
        self.state = state
        self.edits = edits
        self.panes: dict[SideName, Source] = {
            name: Editor(id=f"{name}-source") if name == edits else Source(id=f"{name}-source") for name in SIDES
        }
        self.finals: dict[SideName, Source] = {name: Source(id=f"{name}-final") for name in SIDES}
        """The kernels that the panes show after the duel."""
        self.hidden: SideName | None = other(edits) if edits is not None else None
        """The player whose kernels are hidden until the final, so that the local player cannot copy them."""
        self.changed = True
        self._second = -1
        """The second of the duel that was drawn last."""
        self._shown: dict[SideName, int] = dict.fromkeys(SIDES, 0)
        """Number of the kernel that each pane shows; 0: none."""

    def compose(self) -> ComposeResult:
        with Horizontal(classes="head stacks"):
            yield PlainStatic(id="duel-title")
            yield PlainStatic(id="duel-score")
        yield PlainStatic(id="duel-result")
        with Horizontal(id="duel-panes", classes="panes"):
            yield from self._side_pane("left")
            with Vertical(id="race-pane", classes="pane"):
                yield LineChart(id="race")
                with VerticalScroll(id="attempts"):
                    yield PlainStatic(id="left-attempts")
                    yield PlainStatic(id="right-attempts")
            yield from self._side_pane("right")
        yield PlainStatic(id="duel-clock")
        yield from self.compose_below()
        yield KeyLine()

    def compose_below(self) -> ComposeResult:
        """Lines between the clock and the keys."""
        yield from ()

    def _side_pane(self, name: SideName) -> ComposeResult:
        with Vertical(id=f"{name}-pane", classes="duel-side pane"):
            with ContentSwitcher(initial=f"{name}-source", id=f"{name}-text"):
                yield self.panes[name]
                yield Writing(id=f"{name}-writing")
                yield self.finals[name]
            yield PlainStatic(id=f"{name}-status", classes="duel-status")

    def on_mount(self) -> None:
        self.query_one("#race-pane").border_title = "race"
        self.set_interval(REFRESH_S, self.draw)
        self.panes[self.edits or "left"].focus()
        self.draw()

    def on_resize(self) -> None:
        """Draws again, because the texts depend on the width."""
        self.changed = True

    # --- the duel --------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the duel began."""
        return self.state.at

    def begin_again(self) -> None:
        """Resets the duel to its start."""
        self.state = DuelState(self.state.header)
        self._shown = dict.fromkeys(SIDES, 0)
        self.changed = True

    def hear(self, event: AnyDuelEvent) -> None:
        """Handles an event that was already applied to `state`."""
        self.changed = True

    # --- drawing ---------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draws what has changed, at most ten times a second: pieces of text that arrive in between are drawn together."""
        state, now, second = self.state, self.now, int(self.now)
        if not self.is_attached or not (self.changed or second != self._second):
            return
        self._second = second
        self.query_one("#duel-clock", PlainStatic).update_if_new(duel_words.stage_line(state, now))
        lines = [ChartLine(f"{duel_words.COLOURS[name]} bold", points_of(state, name), holds=True) for name in SIDES]
        # The axis ends at the current time, without pauses; the clock shows how much time is left.
        until = max(_LEAST_SECONDS, float(int(state.clock(now))))
        empty = NO_VERDICT if state.ended is None else NO_SPEEDUP
        self.query_one(LineChart).plot(lines, until=until, axis=figures.clock, empty=empty)
        over, brief = state.ended is not None, self.size.width < NARROW
        for name in () if over else SIDES:
            status = self.query_one(f"#{name}-status", PlainStatic)
            status.update_if_new(duel_words.status(state.side(name), now, state.header.budget_usd, brief))
        if not self.changed:
            return
        self.changed = False
        self.show_keys()
        score = duel_words.score(state, self.size.width < WIDE)
        room = self.size.width - 2 - self.has_class("-wide") * (score.cell_length + 2)  # else it is below the title
        self.query_one("#duel-title", PlainStatic).update_if_new(duel_words.title(state, room, self.SCOPE))
        self.query_one("#duel-score", PlainStatic).update_if_new(score)
        result = self.query_one("#duel-result", PlainStatic)
        result.display = over
        if over:
            result.update_if_new(duel_words.result(state))
        for name in SIDES:
            side = state.side(name)
            pane, concealed = self.query_one(f"#{name}-pane"), name == self.hidden and not over
            below = "hidden until the final" if concealed else ""
            title = duel_words.pane_title(state, name, pane.outer_size.width - FRAME)
            entitle(pane, title, None if name == self.edits else below)
            pane.set_class(concealed, "concealed")
            self.panes[name].soft_wrap = concealed or (name != self.edits and side.last is None)
            line = duel_words.attempts(side, name, state.header.player(name).short, over)
            if self.query_one(f"#{name}-attempts", PlainStatic).update_if_new(line):
                self.query_one("#attempts", VerticalScroll).scroll_end(animate=False)  # to the newest ones
            if name == self.edits:
                self.panes[name].read_only = bool(side.left)
            if over:
                final = duel_words.final_status(state, name, brief)
                self.query_one(f"#{name}-status", PlainStatic).update_if_new(final)
                self._draw_final(name)
            elif name != self.edits:
                self._draw_source(name)

    def _draw_final(self, name: SideName) -> None:
        """Shows the kernel that counts, in place of the text that was written last."""
        switcher, kernel = (self.query_one(f"#{name}-text", ContentSwitcher), duel_words.final_kernel(self.state, name))
        if kernel is None or switcher.current == f"{name}-final":
            return  # there is none, or it is shown already
        had_focus = self.focused is self.panes[name]
        self.finals[name].text = shown_text(kernel.kernel)
        switcher.current = f"{name}-final"
        if had_focus:
            self.finals[name].focus()

    def _draw_source(self, name: SideName) -> None:
        """Shows the text that is being written, else the last submission."""
        side = self.state.side(name)
        switcher = self.query_one(f"#{name}-text", ContentSwitcher)
        path = self.state.header.player(name).kernel_path
        plays = f"# Plays in {path}" if path else ""
        if name == self.hidden:
            told = f"# Hidden until the final. {self.key_words('reveal')} shows it if both agree."
            self.panes[name].text = f"{told}\n{plays}".rstrip()
            return
        shown = f"{name}-writing" if side.writing else f"{name}-source"
        if switcher.current != shown:
            switcher.current = shown
        if side.writing:
            self.query_one(f"#{name}-writing", Writing).follow(side.text)
        elif side.last is not None and self._shown[name] != side.last.number:
            self._shown[name] = side.last.number
            self.panes[name].text = shown_text(side.last.kernel)
        elif side.last is None:
            self.panes[name].text = f"# No submission yet\n{plays}".rstrip()

    # --- keys ------------------------------------------------------------------------------------------------

    def action_share(self) -> None:
        """Writes the card beside the duel's journal, and copies its text to the clipboard."""
        self.start(self._share(), "share")

    async def _share(self) -> None:
        state = self.state
        if state.ended is None:
            self.say("The card exists when the duel is decided")
            return
        path = self.services.paths.duels / f"{state.header.duel_id}.svg"
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(svg_card(state), encoding="utf-8")
        self.app.copy_to_clipboard(text_card(state.header, state.ended))
        self.say(f"Text copied. Picture: {path.name} in {path.parent}")

    def action_leave_duel(self) -> None:
        """Leaves the duel; before its end only on a second press of the key."""
        if self.state.over or self.is_sure("leave_duel", NOT_COUNTED):
            self.dismiss()
