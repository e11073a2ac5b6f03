"""A duel from its journal, at its own pace or up to 20 times that."""

from pathlib import Path

from arena.duel.events import AnyDuelEvent, DuelHeader
from arena.duel.journal import read_duel
from arena.duel.state import DuelState
from screens.duel import REFRESH_S, DuelScreen
from screens.services import Services

PACES = (1, 2, 5, 10, 20)


class ReplayDuelScreen(DuelScreen):
    """Feeds recorded events to the screen when their time has come."""

    def __init__(self, services: Services, path: Path, header: DuelHeader, pace: int = 5) -> None:
        super().__init__(services, DuelState(header))
        self.pace = pace
        self._path = path
        self._events: list[AnyDuelEvent] = []
        self._next = 0
        self._played = 0.0
        self._standing = False

    def on_mount(self) -> None:
        self._events = list(read_duel(self._path))
        super().on_mount()
        self.set_interval(REFRESH_S, self._go_on)
        self._say_pace()

    @property
    def now(self) -> float:
        return min(self._played, self._events[-1].at if self._events else 0.0)

    def _go_on(self) -> None:
        if self._standing:
            return
        self._played += REFRESH_S * self.pace
        while self._next < len(self._events) and self._events[self._next].at <= self._played:
            self.state.apply(self._events[self._next])
            self._next += 1
            self.changed = True

    def _say_pace(self) -> None:
        self.query_one("#race-pane").border_subtitle = f"replay {self.pace}×"

    def action_faster(self) -> None:
        self.pace = next((pace for pace in PACES if pace > self.pace), PACES[-1])
        self._say_pace()

    def action_slower(self) -> None:
        self.pace = next((pace for pace in reversed(PACES) if pace < self.pace), PACES[0])
        self._say_pace()

    def action_pause(self) -> None:
        self._standing = not self._standing

    def action_leave_duel(self) -> None:
        self.dismiss()
