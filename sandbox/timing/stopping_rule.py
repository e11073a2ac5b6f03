"""The stopping rule of timing. The interval may be looked at at any time, so it is checked after every round."""

import math
from collections.abc import Callable

from sandbox.protocol.events import Interval
from sandbox.timing.interval import FEWEST, half_width

LONGEST, LEAST_S = 4.0, 4.0
"""Factor of the measuring time that timing may take to get the pairs that any claim needs, and the fewest seconds of that."""
PRECISE = 0.02
"""Half width of the interval's logarithm that is precise enough, whatever it says."""
SHARP = 0.01
"""Half width at which measuring on after the verdict ends."""
CLEAR = 2.0
"""A difference of so many half widths is clear. At one half width its size would still be uncertain by its half."""
LOOK_EVERY = 0.1
"""Seconds between two looks, because one takes milliseconds."""

Clocks = tuple[Interval | None, Interval | None]
"""(call, device)."""


class StoppingRule:
    """The stopping rule of one run: a fixed number of rounds, or until both clocks can conclude or the time is over."""

    def __init__(self, seconds: float, rounds: int | None = None) -> None:
        """seconds: measuring time, if the number of rounds is not fixed."""
        self.rounds = rounds
        self.most_s = max(seconds, 0.0)
        """Seconds after which timing ends if something can be claimed."""
        self._next_look = 0.0

    @property
    def longest_s(self) -> float:
        """Seconds after which timing ends in any case."""
        return max(LONGEST * self.most_s, LEAST_S)

    def share_s(self, parts: int) -> float:
        """Seconds of each of so many parts of the measuring time; infinite if the number of rounds is fixed."""
        return math.inf if self.rounds is not None else self.most_s / parts

    def ends(self, elapsed_s: float, rounds: int, pairs: int, clocks: Callable[[], Clocks]) -> bool:
        """Whether timing ends after a round. `clocks` computes the intervals so far; it is called only for a look.

        pairs: number of pairs so far on the clock that has the fewest. A clock that the run does not have is left out.
        """
        if self.rounds is not None:
            return rounds >= self.rounds
        if elapsed_s >= self.longest_s:
            return True
        if pairs < FEWEST or elapsed_s < self._next_look:
            return False
        self._next_look = elapsed_s + LOOK_EVERY
        found = clocks()
        return is_enough(*found) or (elapsed_s >= self.most_s and any(each is not None for each in found))

    def expected(self, elapsed_s: float, rounds: int) -> int:
        """The expected number of rounds if all the measuring time is used, for the progress display."""
        if self.rounds is not None:
            return max(self.rounds, rounds)
        if rounds == 0 or elapsed_s <= 0:
            return max(rounds, 1)
        return max(rounds, math.ceil(rounds * self.most_s / elapsed_s))


def is_sharp(call: Interval | None, device: Interval | None) -> bool:
    """Whether measuring on has reached its end: every interval is sharp."""
    found = [interval for interval in (call, device) if interval is not None]
    return bool(found) and all(half_width(interval) <= SHARP for interval in found)


def is_enough(call: Interval | None, device: Interval | None) -> bool:
    """Whether every clock that has an interval is precise enough or shows a clear difference, and there is one."""
    found = [interval for interval in (call, device) if interval is not None]
    return call is not None and all(map(is_clear, found))


def is_clear(interval: Interval) -> bool:
    """Whether the interval is precise enough or shows a clear difference."""
    width = half_width(interval)
    return width <= PRECISE or abs(math.log(max(interval.median, 1e-9))) >= CLEAR * width
