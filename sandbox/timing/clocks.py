"""The two clocks of a run: pairs of batches, the harness overhead, and foreign work."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import msgspec

from sandbox.protocol.events import Interval
from sandbox.protocol.result import Batches
from sandbox.timing import interval
from sandbox.timing.interval import Pair, ReferenceBatch

RIVAL_INDEX, CONTENDER_INDEX = -2, -1
"""The worlds of kernels, in place of a reference's index."""
LEAST_SHARE = 0.25
"""Least share of a batch's time that remains after the overhead is subtracted."""

CALL_LENGTHS = {"short": 100.0, "medium": 1000.0, "long": math.inf}
"""Classes of call length, with their limits in microseconds: world offsets depend on it."""

LEAST_OFFSETS = {"device short": 0.015}
"""Standard error that is added to the log speedup's, by `offsets_class`. Worlds with short calls may have one of two speeds, 3 %
apart (problem 44 at paper, one H200), and all references the same one."""

FOREIGN_US = 50.0
"""A time slice of another context on a GPU is longer than this (a switch alone takes 130 us)."""
FOREIGN_SHARE = 0.2
"""Share of batches with foreign work that is a fault. A kernel that gains by it does it before most batches."""


@dataclass
class Clock:
    """One of the two clocks, in microseconds per call: pairs of batches, and the harness overhead."""

    name: str
    """ "call" or "device"."""
    raw: list[Pair] = field(default_factory=list)
    """Pairs as measured, with the overhead."""
    noop: dict[int, list[float]] = field(default_factory=dict)
    """Times of no-op batches in microseconds per call, by reference, RIVAL_INDEX or CONTENDER_INDEX."""
    speed: Interval | None = None
    why: str = ""
    """Why the pairs claim nothing, if they do not."""
    offsets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """This machine's history of world offsets, by `offsets_class`."""
    rival: bool = False
    """Whether a kernel runs on the baseline's side, too."""
    beside: list[ReferenceBatch] = field(default_factory=list)
    """Batches of references beside the pairs of two kernels."""
    waited: tuple[float, float] = (0.0, 0.0)
    """As `interval.speedup`'s."""
    _most_overhead: tuple[float, float] = (math.inf, math.inf)
    """What the median of (the baseline's, the contender's) batches is above the side's device time, in microseconds per call."""

    def anew(self) -> "Clock":
        """The same clock without pairs."""
        return Clock(self.name, rival=self.rival, offsets=self.offsets)

    def raw_medians(self) -> tuple[float, float]:
        """(baseline's, contender's) median time per call as measured."""
        return median(pair.baseline_us for pair in self.raw), median(pair.contender_us for pair in self.raw)

    def note_noop(self, world: int, us: float) -> None:
        """Adds a no-op batch. world: a key of `noop`."""
        self.noop.setdefault(world, []).append(us)

    @property
    def overhead_us(self) -> float:
        """The overhead in microseconds per call: starting the batch and copying outputs, from worlds without a kernel."""
        found: list[float] = [median(times) for world, times in self.noop.items() if world >= 0]
        return median(found) if found else 0.0

    @property
    def overheads(self) -> tuple[float, float]:
        """What is subtracted from (the baseline's, the contender's) batches, in microseconds per call.

        It is the same, except in end-to-end time where a side's device time limits it, and where a kernel's own is less. So a
        kernel gains nothing by delaying its copies.
        Two no-op batches of one world differ more than worlds do (13 and 3 us on H200), so an overhead of each would be noise.
        """
        baseline_most, contender_most = self._most_overhead
        rivals, own = (median(self.noop.get(world, [math.inf])) for world in (RIVAL_INDEX, CONTENDER_INDEX))
        return min(self.overhead_us, baseline_most, rivals), min(self.overhead_us, contender_most, own)

    def overhead_error(self) -> float:
        """Standard error of the log speedup from the uncertainty of the overhead."""
        found = [us for world, times in self.noop.items() if world >= 0 for us in times]
        if len(found) < 2 or not self.raw:
            return 0.0
        shared, alone = 0.0, []
        for sign, world, us in zip((1, -1), (RIVAL_INDEX, CONTENDER_INDEX), self.medians(), strict=True):
            own = self.noop.get(world, [math.inf])
            if median(own) < self.overhead_us:
                alone.append(_median_error(own) / (us or 1.0))
            else:
                shared += sign / (us or 1.0)
        return math.hypot(_median_error(found) * shared, *alone)

    @property
    def pairs(self) -> list[Pair]:
        """The pairs with the overhead subtracted from both times."""
        baseline, contender = self.overheads
        return [
            msgspec.structs.replace(
                pair, baseline_us=_net(pair.baseline_us, baseline), contender_us=_net(pair.contender_us, contender)
            )
            for pair in self.raw
        ]

    def estimate(self, device: "Clock | None" = None) -> Interval | None:
        """Estimates the speedup from all pairs so far.

        device: the other clock of an end-to-end clock. Output copies can overlap with the device's work and then cost nothing, so
        subtracting the overhead must not bring the median of a side below its device time. What is subtracted is the same for all
        batches of a side: raising each batch to the device time would hide the noise.
        """
        if self.raw:
            floors = device.medians() if device else (None, None)
            spare = [us - (floor or -math.inf) for us, floor in zip(self.raw_medians(), floors, strict=True)]
            self._most_overhead = max(0.0, spare[0]), max(0.0, spare[1])
            error = math.hypot(self.overhead_error(), LEAST_OFFSETS.get(self.offsets_class, 0.0))
            if device and min(spare) < self.overhead_us:
                error = math.hypot(error, device.median_error())
            beside = self._of_references if self.rival else ()
            self.speed, self.why = interval.speedup(self.pairs, self.history, error, self.waited, beside)
        return self.speed

    def median_error(self) -> float:
        """Standard error of the logarithm of the ratio of both medians."""
        sides = [pair.baseline_us for pair in self.raw], [pair.contender_us for pair in self.raw]
        return math.hypot(*(_median_error([math.log(us) for us in times]) for times in sides))

    @property
    def history(self) -> Sequence[float]:
        """What is known of world offsets in runs like this one."""
        return self.offsets.get(self.offsets_class) or interval.no_history(self.offsets_class)

    @property
    def offsets_class(self) -> str:
        """The key of this run's world offsets, by the baseline's time of a call: "call short", "device long"."""
        return self._class_of(self.medians()[0] or 0.0)

    def _class_of(self, us: float) -> str:
        return f"{self.name} {next(name for name, below in CALL_LENGTHS.items() if us < below)}"

    @property
    def _of_references(self) -> list[ReferenceBatch]:
        """The batches of references, without the overhead."""
        if self.rival:
            return [(number, _net(us, self.overhead_us), cores) for number, us, cores in self.beside]
        return [(pair.reference, pair.baseline_us, pair.cores) for pair in self.pairs if interval.is_sound(pair)]

    def learned_offsets(self) -> dict[str, list[float]]:
        """The history after this run, from its reference worlds only; empty if they show nothing."""
        if not (batches := self._of_references):
            return {}
        length = self._class_of(median(us for _, us, _ in batches))
        found = interval.learned(batches, self.offsets.get(length) or interval.no_history(length))
        return {length: found} if found else {}

    def medians(self) -> tuple[float | None, float | None]:
        """(baseline, contender) microseconds per call."""
        if not (pairs := self.pairs):
            return None, None
        return median(pair.baseline_us for pair in pairs), median(pair.contender_us for pair in pairs)

    def samples(self) -> list[Batches]:
        """The pairs for the result."""
        return [msgspec.convert(pair, Batches, from_attributes=True) for pair in self.pairs]


def _median_error(found: Sequence[float]) -> float:
    """Standard error of the median of these values."""
    middle: float = median(found)
    return 1.25 * 1.4826 * median(abs(each - middle) for each in found) / math.sqrt(len(found))


def _net(us: float, overhead: float) -> float:
    return max(us - overhead, us * LEAST_SHARE)


@dataclass
class ForeignWork:
    """Foreign work on the GPUs right before batches, while the kernel was stopped."""

    foreign_us: dict[str, list[float]] = field(default_factory=dict)
    """Longest foreign work in microseconds, by kind of the next batch."""

    def note(self, before: str, foreign_us: float) -> None:
        """Adds a measurement right before a batch. before: the kind of batch, such as "baseline, call"."""
        self.foreign_us.setdefault(before, []).append(foreign_us)

    @property
    def fault(self) -> str:
        """The fault in one line if foreign work was too frequent before one kind of batch; else empty."""
        for before, found in self.foreign_us.items():
            busy = sum(foreign > FOREIGN_US for foreign in found)
            if busy >= max(2, FOREIGN_SHARE * len(found)):
                many = f"{busy} of {len(found)} batches ({before} time)"
                return f"foreign work ran on the GPUs right before {many}, while the kernel had to be idle"
        return ""
