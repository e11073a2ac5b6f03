"""The decision when to stop measuring: looks at few times, so that looking often does not make a difference of chance."""

import math
from collections.abc import Callable
from enum import Enum

from sandbox.protocol.events import Interval
from sandbox.timing.interval import detectable_percent, half_width, outcome

CHECK_TIMES = (0.5, 1.0, 2.0, 4.0)
"""Times of the looks, in budgets. The last is the end."""
LEAST_PAIRS = 12
"""Fewer pairs than this settle nothing."""
LONGER = 2.0
"""So many times the last look's time may be spent to get the fewest pairs."""
ENOUGH_PERCENT = 10.0
"""Percent. A clock that would have seen so much tells enough."""
CLEAR = 2.0
"""A difference of so many half widths is clear: so far from the limit that looking more than once does not matter."""
CALL_PERCENT = 20.0
"""Percent. The same for calls where device time is settled."""

Clocks = tuple[Interval | None, Interval | None]
"""(call, device)."""


class Decision(Enum):
    """What to do after a round."""

    GO_ON = "go on"
    ENOUGH = "enough"
    OUT_OF_TIME = "out of time"


class StoppingRule:
    """The stopping rule of one run. Either a fixed number of rounds, or looks at 1/2, 1, 2 and 4 times the budget."""

    def __init__(self, budget_s: float, rounds: int | None = None, least_pairs: int = LEAST_PAIRS) -> None:
        """least_pairs: of the clock that has the fewest."""
        self.rounds = rounds
        self.least_pairs = least_pairs
        self._check_times = [share * max(budget_s, 0.0) for share in CHECK_TIMES]
        self._next = 0

    @property
    def most_s(self) -> float:
        """Seconds after which measuring ends, if there are enough pairs."""
        return self._check_times[-1]

    def extend(self, elapsed_s: float, seconds: float) -> None:
        """Measures on: looks again after so many seconds from now, and not before."""
        self._check_times = [max(elapsed_s, 0.0) + seconds]
        self._next = 0

    def decide(self, elapsed_s: float, rounds: int, pairs: int, clocks: Callable[[], Clocks]) -> Decision:
        """After a round. `clocks` makes the intervals so far; it is only called when a look is due.

        pairs: so far, of the clock that has the fewest (a clock that the run does not have is left out).
        """
        if self.rounds is not None:
            return Decision.ENOUGH if rounds >= self.rounds else Decision.GO_ON
        if elapsed_s < self._check_times[self._next]:
            return Decision.GO_ON
        enough = pairs >= self.least_pairs
        if not enough:
            return Decision.OUT_OF_TIME if elapsed_s >= LONGER * self.most_s else Decision.GO_ON
        while self._next + 1 < len(self._check_times) and elapsed_s >= self._check_times[self._next]:
            self._next += 1
        if is_enough(*clocks()):
            return Decision.ENOUGH
        return Decision.OUT_OF_TIME if elapsed_s >= self.most_s else Decision.GO_ON

    def expected(self, elapsed_s: float, rounds: int) -> int:
        """How many rounds there will be at this pace if the next look ends it; for the progress display."""
        if self.rounds is not None:
            return max(self.rounds, rounds)
        if rounds == 0 or elapsed_s <= 0:
            return max(rounds, 1)
        return max(rounds, math.ceil(rounds * self._check_times[self._next] / elapsed_s))


def is_enough(call: Interval | None, device: Interval | None) -> bool:
    """More pairs would not change what is said, or hardly."""
    if call is None or device is None:
        only = call or device
        return only is not None and _is_clear(only)
    if not _is_clear(device):
        return False
    return _is_clear(call) or (outcome(call) != "too noisy" and detectable_percent(call) <= CALL_PERCENT)


def _is_clear(interval: Interval) -> bool:
    difference = abs(math.log(max(interval.median, 1e-9)))
    return detectable_percent(interval) <= ENOUGH_PERCENT or difference >= CLEAR * half_width(interval)
