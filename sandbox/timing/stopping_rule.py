"""The stopping rule of timing. It is checked at few fixed times, because frequent checks inflate false positives."""

import math
from collections.abc import Callable
from enum import Enum

from sandbox.protocol.events import Interval
from sandbox.timing.interval import FEWEST, detectable_percent, half_width, outcome

CHECK_TIMES = (0.5, 1.0, 2.0, 4.0)
"""Times of the checks, in budgets. The last check ends timing."""
LEAST_PAIRS, FEW_PAIRS = 12, 8
"""Fewer pairs are not enough. After the last check's time, the second number is enough if its pairs are precise or their
differences clear; that is checked once."""
LONGER, LONGEST = 2.0, 4.0
"""Factors of the last check's time that timing may take to get enough pairs, and to get those that any claim needs."""
ENOUGH_PERCENT = 10.0
"""Smallest detectable difference, in percent, that is precise enough."""
CLEAR = 2.0
"""A difference of this many half widths is clear, so that repeated checks do not matter."""
CALL_PERCENT = 20.0
"""Smallest detectable difference of end-to-end time, in percent, that is precise enough if device time is."""

Clocks = tuple[Interval | None, Interval | None]
"""(call, device)."""


class Decision(Enum):
    """What to do after a round."""

    GO_ON = "go on"
    ENOUGH = "enough"
    OUT_OF_TIME = "out of time"


class StoppingRule:
    """The stopping rule of one run: a fixed number of rounds, or checks at 1/2, 1, 2 and 4 times the budget."""

    def __init__(self, budget_s: float, rounds: int | None = None) -> None:
        self.rounds = rounds
        self._check_times = [share * max(budget_s, 0.0) for share in CHECK_TIMES]
        self._next = 0
        self._checked_few = False

    @property
    def most_s(self) -> float:
        """Seconds after which timing ends if there are enough pairs."""
        return self._check_times[-1]

    @property
    def longest_s(self) -> float:
        """Seconds after which timing ends with any number of pairs."""
        return LONGEST * self.most_s

    def share_s(self, parts: int) -> float:
        """Seconds of each of so many parts of the longest time; infinite if the number of rounds is fixed."""
        return math.inf if self.rounds is not None else self.most_s / parts

    def decide(self, elapsed_s: float, rounds: int, pairs: int, clocks: Callable[[], Clocks]) -> Decision:
        """The decision after a round. `clocks` computes the intervals so far; it is called only for a check.

        pairs: number of pairs so far on the clock that has the fewest. A clock that the run does not have is left out.
        """
        if self.rounds is not None:
            return Decision.ENOUGH if rounds >= self.rounds else Decision.GO_ON
        if elapsed_s < self._check_times[self._next]:
            return Decision.GO_ON
        if pairs < LEAST_PAIRS:
            if elapsed_s >= (LONGER * self.most_s if pairs >= FEWEST else self.longest_s):
                return Decision.OUT_OF_TIME
            if pairs < FEW_PAIRS or elapsed_s < self.most_s or self._checked_few:
                return Decision.GO_ON
            self._checked_few = True
            return Decision.ENOUGH if is_enough(*clocks()) else Decision.GO_ON
        while self._next + 1 < len(self._check_times) and elapsed_s >= self._check_times[self._next]:
            self._next += 1
        if is_enough(*clocks()):
            return Decision.ENOUGH
        return Decision.OUT_OF_TIME if elapsed_s >= self.most_s else Decision.GO_ON

    def expected(self, elapsed_s: float, rounds: int) -> int:
        """The expected number of rounds if the next check ends timing, for the progress display."""
        if self.rounds is not None:
            return max(self.rounds, rounds)
        if rounds == 0 or elapsed_s <= 0:
            return max(rounds, 1)
        return max(rounds, math.ceil(rounds * self._check_times[self._next] / elapsed_s))


def is_enough(call: Interval | None, device: Interval | None) -> bool:
    """Whether the intervals are precise enough or the differences clear."""
    if call is None or device is None:
        only = call or device
        return only is not None and _is_clear(only)
    if not _is_clear(device):
        return False
    return _is_clear(call) or (outcome(call) != "too noisy" and detectable_percent(call) <= CALL_PERCENT)


def _is_clear(interval: Interval) -> bool:
    difference = abs(math.log(max(interval.median, 1e-9)))
    return detectable_percent(interval) <= ENOUGH_PERCENT or difference >= CLEAR * half_width(interval)
