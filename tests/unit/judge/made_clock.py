"""A simulated clock with a queue of due actions, and a selector that waits by it."""

import heapq
import selectors
from collections.abc import Callable
from typing import Any

Action = Callable[[], None]


class MadeClock:
    """A TimeSource. Time passes only in `sleep` and `pass_to_next`, which run the due actions in order."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self._due: list[tuple[int, int, Action]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float, /) -> None:
        self._pass_until(self.now_ns + round(seconds * 1e9))

    def after(self, seconds: float, action: Action) -> None:
        """Schedules an action in so many seconds, after actions that are due earlier or at the same moment."""
        self._count += 1
        heapq.heappush(self._due, (self.now_ns + round(seconds * 1e9), self._count, action))

    def pass_to_next(self, most: float) -> None:
        """Lets time pass until the next action is due, but for at most `most` seconds."""
        until = self.now_ns + max(round(most * 1e9), 1)
        self._pass_until(min(until, max(self._due[0][0], self.now_ns)) if self._due else until)

    def _pass_until(self, until: int) -> None:
        while self._due and self._due[0][0] <= until:
            moment, _, action = heapq.heappop(self._due)
            self.now_ns = max(self.now_ns, moment)
            action()
        self.now_ns = max(self.now_ns, until)


class MadeSelector(selectors.BaseSelector):
    """Nothing is ever readable: waiting only lets time pass."""

    def __init__(self, clock: MadeClock) -> None:
        self.clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.clock.pass_to_next(0.25 if timeout is None else timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError

    def get_map(self) -> Any:
        return {}
