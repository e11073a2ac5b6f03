"""The two times of a run as pairs of batches, and what disturbed them."""

import math
from dataclasses import dataclass, field
from statistics import median

import msgspec

from sandbox.protocol.events import Interval
from sandbox.protocol.samples import Batches
from sandbox.timing import interval
from sandbox.timing.interval import Pair

CONTENDER = -1
"""In place of a reference's index."""
LEAST_SHARE = 0.25
"""Of a batch's time that remains at the least when the harness's is taken off."""

FOREIGN_US = 50.0
"""A turn of another context on a GPU, however short its kernels, takes longer than this (switching alone takes 130 us)."""
FOREIGN_SHARE = 0.2
"""Of the batches; a kernel that gains anything by working between them does so before most."""


@dataclass
class Clock:
    """One of the two times, in microseconds per call: pairs of batches, and what the harness itself takes."""

    name: str
    """ "call" or "device"."""
    raw: list[Pair] = field(default_factory=list)
    """As measured; the harness's own time is in them."""
    noop: dict[int, list[float]] = field(default_factory=dict)
    """Batches of as many calls that return a kept result, microseconds a call: by reference, or CONTENDER."""
    speed: Interval | None = None
    rival: bool = False
    """A kernel runs on the baseline's side, too."""
    _floors: tuple[float, float] = (0.0, 0.0)

    def note(self, pair: Pair) -> None:
        """Adds a pair."""
        self.raw.append(pair)

    def note_noop(self, world: int, us: float) -> None:
        """Adds a batch of kept results. world: index of the reference, or CONTENDER."""
        self.noop.setdefault(world, []).append(us)

    @property
    def harness_us(self) -> float:
        """What the harness takes a call where no kernel runs: starting the batch, copying the outputs.

        Where a kernel runs on both sides it is what the quicker one says: a kernel that delays its own copies gains nothing.
        """
        costs: list[float] = [median(found) for world, found in self.noop.items() if self._believed(world)]
        if not costs:
            return 0.0
        return min(costs) if self.rival else float(median(costs))

    def cost_us(self, world: int) -> float:
        """What is taken off a world's batches, a call.

        Of call time the same everywhere. Of device time what the world itself took, because worlds differ in how soon they see
        the gate open; but of a contender no more than of the slowest reference, so that a delay gains it nothing beyond what
        worlds differ by anyway.
        """
        if self.name == "call" or self.rival or world not in self.noop:
            return self.harness_us
        own: float = median(self.noop[world])
        return own if self._believed(world) else min(own, max(self._reference_costs(), default=0.0))

    def _believed(self, world: int) -> bool:
        return self.rival or world != CONTENDER

    def _reference_costs(self) -> list[float]:
        return [median(found) for world, found in self.noop.items() if world != CONTENDER]

    def harness_error(self) -> float:
        """Standard error of the log of the speedup that the harness's time, which is known so well, causes."""
        found = [us for world, times in self.noop.items() if self._believed(world) for us in times]
        if len(found) < 2 or not self.raw:
            return 0.0
        middle: float = median(found)
        spread: float = 1.4826 * median(abs(us - middle) for us in found)
        base, mine = (us or 1.0 for us in self.medians())
        return 1.25 * spread / math.sqrt(len(found)) * abs(1 / base - 1 / mine)

    @property
    def pairs(self) -> list[Pair]:
        """The pairs without the harness's time, which may not make them quicker than their work on the device."""
        base, mine = self._floors
        costs = {world: self.cost_us(world) for world in {CONTENDER, *(pair.reference for pair in self.raw)}}
        return [
            msgspec.structs.replace(
                pair,
                baseline_us=_net(pair.baseline_us, costs[pair.reference], base),
                contender_us=_net(pair.contender_us, costs[CONTENDER], mine),
            )
            for pair in self.raw
        ]

    def estimate(self, floors: tuple[float, float] = (0.0, 0.0)) -> Interval | None:
        """The speedup over all pairs so far.

        floors: what the calls of both sides take on the device alone, in microseconds; zeros where that is not known. Copies that
        hide behind the device's work cost nothing, so taking off the host's time for them must not go below it.
        """
        self._floors = floors
        if self.raw:
            self.speed = interval.speedup(self.pairs, self.name, self.harness_error())
        return self.speed

    def medians(self) -> tuple[float | None, float | None]:
        """(baseline, contender) microseconds per call."""
        pairs = self.pairs
        if not pairs:
            return None, None
        return median(pair.baseline_us for pair in pairs), median(pair.contender_us for pair in pairs)

    def samples(self) -> list[Batches]:
        """The pairs, for the record."""
        return [
            Batches(pair.calls, pair.baseline_us, pair.contender_us, pair.baseline_first, pair.reference)
            for pair in self.pairs
        ]


def _net(us: float, cost: float, floor: float) -> float:
    return max(us - cost, us * LEAST_SHARE, floor)


@dataclass
class ForeignWork:
    """What else ran on the GPUs right before batches, when the kernel had to be at rest."""

    foreign_us: dict[str, list[float]] = field(default_factory=dict)
    """The longest moment that the work of others took, by what was about to start, in order."""

    def note(self, before: str, foreign_us: float) -> None:
        """Adds a look right before a batch of one kind: "baseline, call", "contender, device"..."""
        self.foreign_us.setdefault(before, []).append(foreign_us)

    @property
    def fault(self) -> str:
        """What to say when it happened too often before batches of one kind; empty when it did not."""
        for before, found in self.foreign_us.items():
            busy = sum(foreign > FOREIGN_US for foreign in found)
            if busy >= max(2, FOREIGN_SHARE * len(found)):
                many = f"{busy} of {len(found)} batches ({before} time)"
                return f"something ran on the GPUs right before {many}, when the kernel had to be at rest"
        return ""
