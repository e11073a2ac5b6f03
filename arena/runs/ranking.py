"""Ranks kernels by their speed: all measurements of the same code in one setting count as one.

Repeating a measurement therefore never raises a kernel's figure by luck. Whatever ranks or remembers speedups uses this module.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from sandbox.protocol.events import Interval
from sandbox.timing.interval import outcome

Item = TypeVar("Item")

SHORT = 0.5
"""Measurements with less than this share of the longest one's rounds are replaced by it."""


class Measurement(NamedTuple):
    """One measurement of a kernel."""

    code: Hashable
    """Equal for measurements that can be pooled: the hash of the code, and the setting where that varies."""
    speedup: Interval
    clock: str = ""
    """Of the headline: "call", "device", or empty for results of older versions."""
    rounds: int = 0


@dataclass(frozen=True)
class Ranked(Generic[Item]):
    """All measurements of one kernel."""

    item: Item
    """The longest measurement, the earliest of equals."""
    items: tuple[Item, ...]
    """All that were pooled or replaced, in the order they came."""
    speedup: Interval
    """The medians of the pooled measurements' middles and ends: repeating does not narrow an interval."""
    clock: str

    @property
    def outcome(self) -> str:
        """ "faster", "slower", "even" or "too noisy", by the pooled interval."""
        return outcome(self.speedup)


def ranked(items: Iterable[Item], measured: Callable[[Item], Measurement | None]) -> list[Ranked[Item]]:
    """The kernels in `items`, the one with the highest low end first, the earliest of equals.

    measured: the measurement of an item; None where nothing was timed, which leaves the item out.
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
