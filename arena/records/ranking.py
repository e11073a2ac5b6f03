"""Ranks kernels by their speed: all measurements of the same code in one setting count as one.

Repeating a measurement therefore never raises a kernel's figure by luck.
All code that ranks or stores speedups uses this module.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from sandbox.protocol.events import Interval
from sandbox.timing.interval import outcome

Item = TypeVar("Item")

SHORT = 0.5
"""Measurements with less than this share of the longest one's rounds are not pooled."""


class Measurement(NamedTuple):
    """One measurement of a kernel."""

    code: Hashable
    """Equal for measurements that can be pooled: the hash of the code, and the setting where that varies."""
    speedup: Interval
    clock: str = ""
    """The headline's clock: "call" or "device"."""
    rounds: int = 0


@dataclass(frozen=True)
class Ranked(Generic[Item]):
    """All measurements of one kernel."""

    item: Item
    """The measurement with the most rounds, the earliest of equals."""
    items: tuple[Item, ...]
    """All measurements, pooled or not, in the order they came."""
    speedup: Interval
    """Medians of the middles and ends of the pooled intervals, so that repeating does not narrow the interval."""
    clock: str

    @property
    def outcome(self) -> str:
        """ "faster", "slower", "even" or "too noisy", by the pooled interval."""
        return outcome(self.speedup)


def ranked(items: Iterable[Item], measured: Callable[[Item], Measurement | None]) -> list[Ranked[Item]]:
    """Returns the kernels in `items`, the one with the highest low end first; equals keep their order.

    measured: returns the measurement of an item; None leaves out an item that was not timed.
    """
    groups: dict[Hashable, list[tuple[Item, Measurement]]] = {}
    for item in items:
        if (found := measured(item)) is not None:
            groups.setdefault(found.code, []).append((item, found))
    return sorted(map(_pooled, groups.values()), key=lambda kernel: -kernel.speedup.low)


def _pooled(group: list[tuple[Item, Measurement]]) -> Ranked[Item]:
    item, longest = max(group, key=lambda pair: pair[1].rounds)
    kept = [
        found.speedup for _, found in group if found.clock == longest.clock and found.rounds >= SHORT * longest.rounds
    ]
    middle, low, high = (median(getattr(each, end) for each in kept) for end in Interval.__struct_fields__)
    return Ranked(item, tuple(each for each, _ in group), Interval(middle, low, high), longest.clock)
