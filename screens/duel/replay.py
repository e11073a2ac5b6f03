"""Replays a duel from its journal, up to 20 times as fast; a click on the bar seeks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

from arena.duel import events
from arena.duel.journal import read_duel
from arena.duel.state import DuelState
from arena.errors import why
from sandbox.protocol.verdict import Verdict
from screens import figures
from screens.actions import Scope, bindings
from screens.app_protocol import AppProtocol
from screens.duel import REFRESH_S, DuelScreen

PACES = (1, 2, 5, 10, 20)
_STOPS = (events.Submitted, events.KernelJudged, events.FinalBegan, events.DuelEnded)
"""Events at which a step stops."""


SeekMark = tuple[float, str, str]
"""The mark of an event: the seconds since the duel began, its sign, its theme colour."""


class SeekBar(Widget):
    """One line: the current time, the bar with its marks, the length, and a word such as the pace."""

    DEFAULT_CSS = "SeekBar { height: 1; margin: 0 1; text-wrap: nowrap; }"

    @dataclass
    class Sought(Message):
        """A place on the bar was clicked."""

        at: float
        """Seconds since the duel began."""

    _length = 0.0
    _marks: Sequence[SeekMark] = ()
    _shown: tuple[float, str] = (0.0, "")

    def open(self, length: float, marks: Sequence[SeekMark]) -> None:
        """Sets the length in seconds, and the marks. Of several marks on one cell, only the last is shown."""
        self._length, self._marks = length, marks
        self.refresh()

    def show(self, at: float, words: str) -> None:
        """Shows the current time in seconds, and the words behind the bar."""
        if (at, words) != self._shown:
            self._shown = (at, words)
            self.refresh()

    @property
    def _left(self) -> str:
        return f"{figures.clock(self._shown[0]):>5} "

    def _cells(self) -> int:
        """Returns the width of the bar itself."""
        return max(4, self.size.width - len(self._left) - len(self._right))

    @property
    def _right(self) -> str:
        return f" {figures.clock(self._length)}   {self._shown[1]:<10}"

    def _cell(self, at: float) -> int:
        return min(self._cells() - 1, int(at / self._length * self._cells())) if self._length else 0

    def render(self) -> Content:
        here, marks = self._cell(self._shown[0]), {self._cell(at): (sign, style) for at, sign, style in self._marks}
        bar = [marks.get(cell, ("━", "$accent" if cell < here else "$rule")) for cell in range(self._cells())]
        bar[here] = ("●", "$accent bold")
        return Content.assemble((self._left, "$muted"), *bar, (self._right, "$muted"))

    def on_click(self, event: Click) -> None:
        cell = event.x - len(self._left)
        if 0 <= cell < self._cells():
            self.post_message(self.Sought(cell / self._cells() * self._length))


class ReplayDuelScreen(DuelScreen):
    """Applies recorded events at their times."""

    SCOPE: ClassVar[Scope] = "replay"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("replay")]

    def __init__(self, parent_app: AppProtocol, path: Path, header: events.DuelHeader, pace: int = 5) -> None:
        super().__init__(parent_app, DuelState(header))
        self.pace = pace
        self._path = path
        self._events: list[events.AnyDuelEvent] = []
        self._next = 0
        self._played = 0.0
        self._standing = False

    def compose_below(self) -> ComposeResult:
        yield SeekBar(id="seek")

    def on_mount(self) -> None:
        try:
            self._events = list(read_duel(self._path))
        except OSError as error:  # deleted since the board was read, or not readable
            self.complain(f"{self._path}: {why(error)}")
            self.call_after_refresh(self.action_leave_replay)
        self.query_one(SeekBar).open(self._length, [mark for event in self._events if (mark := _mark(event))])
        self.set_interval(REFRESH_S, self._go_on)

    @property
    def now(self) -> float:
        return min(self._played, self._length)

    @property
    def _length(self) -> float:
        return self._events[-1].at if self._events else 0.0

    def _go_on(self) -> None:
        if not self._standing:
            self.play_to(self._played + REFRESH_S * self.pace)
        words = "at the end" if self._played >= self._length else "pause" if self._standing else f"{self.pace}×"
        self.query_one(SeekBar).show(self.now, words)

    def play_to(self, at: float) -> None:
        """Moves to a time in seconds. If that is in the past, applies all events again from the start."""
        if at < self._played:
            self.begin_again()
            self._next = 0
        self._played = max(0.0, min(at, self._length))
        while self._next < len(self._events) and self._events[self._next].at <= self._played:
            self.state.apply(self._events[self._next])
            self._next += 1
            self.changed = True
        self.show_keys()  # at once: another event may read the keys before the next drawing

    @on(SeekBar.Sought)
    def _sought(self, event: SeekBar.Sought) -> None:
        self.play_to(event.at)

    # --- keys ------------------------------------------------------------------------------------------------

    @property
    def idle_actions(self) -> frozenset[str]:
        """At the end, the actions that lead to it; before, the one that needs a result."""
        return frozenset({"replay_share"} if self.state.ended is None else {"replay_on", "replay_end"})

    def action_faster(self) -> None:
        self.pace = next((pace for pace in PACES if pace > self.pace), PACES[-1])

    def action_slower(self) -> None:
        self.pace = next((pace for pace in reversed(PACES) if pace < self.pace), PACES[0])

    def action_replay_pause(self) -> None:
        if self._played >= self._length:
            self.play_to(0.0)
            self._standing = False
        else:
            self._standing = not self._standing

    def action_replay_on(self) -> None:
        self._step(min((at for at in self._stops if at > self._played), default=self._length))

    def action_replay_back(self) -> None:
        self._step(max((at for at in self._stops if at < self._played), default=0.0))

    @property
    def _stops(self) -> list[float]:
        return [event.at for event in self._events if isinstance(event, _STOPS)]

    def _step(self, at: float) -> None:
        self._standing = True
        self.play_to(at)

    def action_replay_start(self) -> None:
        self.play_to(0.0)

    def action_replay_end(self) -> None:
        self.play_to(self._length)

    action_replay_share = DuelScreen.action_share

    def action_leave_replay(self) -> None:
        self.dismiss()


def _mark(event: events.AnyDuelEvent) -> SeekMark | None:
    """Returns the event's mark on the seek bar; None if it has none."""
    match event:
        case events.KernelJudged():
            good = event.verdict is Verdict.PASS
            return (event.at, "✓" if good else "✗", "$success" if good else "$error")
        case events.FinalBegan():
            return (event.at, "◆", "$accent bold")
        case events.DuelEnded() if event.winner != "draw":
            return (event.at, "★", "$accent bold")
        case _:
            return None
