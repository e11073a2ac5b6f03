"""Ranks kernels by their speed: all measurements of the same code in one setting count as one.

Repeating a measurement therefore never raises a kernel's figure by luck. All code that ranks speedups uses this module.
"""

import operator
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Generic, NamedTuple, TypeVar

import msgspec

from arena.records.run_record import RunRecord, holds
from arena.words.headline import SIGNS, brief_verdict, factor
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import half_width, outcome

Item = TypeVar("Item")

BLUNT = 2.0
"""Measurements with more than this factor times the half width of the sharpest one are not pooled."""


class Measurement(NamedTuple):
    """One measurement of a kernel."""

    code: Hashable
    """Equal for measurements that can be pooled: the hash of the code, and the setting where that varies."""
    speedup: Interval
    clock: str = ""
    """The headline's clock: "call" or "device"."""


@dataclass(frozen=True)
class Ranked(Generic[Item]):
    """All measurements of one kernel."""

    item: Item
    """The sharpest measurement, the earliest of equals; one by end-to-end time, if there is one."""
    items: tuple[Item, ...]
    """All measurements, in the order they came."""
    pooled: tuple[Item, ...]
    """Those that `speedup` is of: by the same clock, and not much blunter than the sharpest."""
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
    item, sharpest = min(group, key=lambda pair: (pair[1].clock == "device", half_width(pair[1].speedup)))
    most = BLUNT * half_width(sharpest.speedup)
    kept = [pair for pair in group if pair[1].clock == sharpest.clock and half_width(pair[1].speedup) <= most]
    middle, low, high = (median(getattr(each.speedup, end) for _, each in kept) for end in Interval.__struct_fields__)
    items, pooled = (tuple(each for each, _ in pairs) for pairs in (group, kept))
    return Ranked(item, items, pooled, Interval(middle, low, high), sharpest.clock)


class Standing(msgspec.Struct, frozen=True):
    """A player's best and last results in one problem. Voided runs count in `runs` alone."""

    problem_id: int
    runs: int
    solved: bool
    """At least one PASS."""
    best: RunRecord | None
    """The correct kernel with the highest speedup at a preset's own sizes, all its measurements pooled."""
    last: RunRecord
    """The last run that is not voided; if all are voided, the last of all."""
    pooled: int = 0
    """Number of runs that the figures of `best` are of (`Ranked.pooled`)."""
    holds: str = ""
    """If `best` is faster: it is also faster at "all", "some" or "none" of the other sizes; empty: not known."""

    @property
    def faster(self) -> bool:
        """Whether the interval of `best` lies above 1."""
        return self.best is not None and self.best.outcome == "faster"

    @property
    def words(self) -> str:
        """ "▲ 1.42×", "▲ 1.42× device" by device time, "✓ pass", "✗ wrong", "! harness" or "✗ voided"."""
        if self.best is not None and self.best.median is not None:
            on_device = " device" if self.best.clock == "device" else ""
            return f"{SIGNS.get(self.best.outcome, '≈')} {factor(self.best.median)}×{on_device}"
        if self.solved:
            return "✓ pass"
        if self.last.voided:
            return "✗ voided"
        sign = "!" if self.last.verdict is Verdict.HARNESS_ERROR else "✗"
        return f"{sign} {brief_verdict(self.last.verdict)}"


def fastest(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Returns the correct kernels at presets' own sizes, fastest first, each with the pooled figures of its runs.

    Leaves out voided runs, and kernels whose times were too noisy.
    """
    return [record for record, _ in _kernels(records)]


def _kernels(records: Iterable[RunRecord]) -> list[tuple[RunRecord, int]]:
    """As `fastest`, each with the number of runs that its figures are of."""
    kernels = [
        (
            each.item if len(each.pooled) == 1 else each.item.pooled(each.speedup, each.outcome, each.clock),
            len(each.pooled),
        )
        for each in ranked(records, _measurement)
    ]
    return [(record, runs) for record, runs in kernels if record.outcome != "too noisy"]


def _measurement(record: RunRecord) -> Measurement | None:
    if record.interval is None or not record.passed or not record.is_ranked or record.voided:
        return None
    key = (record.code, record.problem_id, record.device, record.world, record.dtype, record.preset, record.machine)
    return Measurement(key, record.interval, record.clock)


def standing_of(problem_id: int, records: list[RunRecord]) -> Standing:
    """Returns a player's standing in a problem. records: all runs of the player in it, oldest first."""
    counted = [record for record in records if not record.voided]
    solved = any(record.passed and not record.other_than for record in counted)
    best, pooled = next(iter(_kernels(counted)), (None, 0))
    held = holds_elsewhere(best, records) if best is not None else ""
    return Standing(problem_id, len(records), solved, best, (counted or records)[-1], pooled, held)


def holds_elsewhere(best: RunRecord, records: Iterable[RunRecord]) -> str:
    """Returns `holds` for a faster kernel, from the runs at other sizes that belong to its own runs in the same setting.

    records: all runs of the player in the problem. Empty for a kernel that is not faster.
    """
    if best.outcome != "faster":
        return ""
    records = [record for record in records if not record.voided]
    same = operator.attrgetter(*("code", "preset", "preset_sizes", "device", "world", "dtype", "machine", "other_than"))
    own = {each.run_id for each in records if same(each) == same(best)}
    return holds([each for each in records if each.other_than in own])
