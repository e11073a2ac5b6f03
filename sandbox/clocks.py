"""What the rounds of a run add up to: the two times, and what disturbed them."""

from dataclasses import dataclass, field
from statistics import median

from sandbox import interval
from sandbox.events import Batches, Interval

FOREIGN_US = 50.0
"""A turn of another context on a GPU, however short its kernels, takes longer than this (switching alone takes 130 us)."""
FOREIGN_SHARE = 0.2
"""Of the batches; a kernel that gains anything by working between them does so before most."""


@dataclass
class Clock:
    """One of the two times, in microseconds per call, an entry a round."""

    batches: list[Batches] = field(default_factory=list)
    speed: Interval | None = None

    def note(self, base: float, theirs: float, calls: int, baseline_first: bool) -> None:
        """Adds a round, given in seconds a batch."""
        self.batches.append(Batches(calls, base / calls * 1e6, theirs / calls * 1e6, baseline_first))

    @property
    def baseline_us(self) -> list[float]:
        """The baseline's time a call, by round."""
        return [batches.baseline_us for batches in self.batches]

    @property
    def contender_us(self) -> list[float]:
        """The contender's time a call, by round."""
        return [batches.contender_us for batches in self.batches]

    def settle(self, margin: float, waits: tuple[float, float] = (0.0, 0.0)) -> Interval | None:
        """The speedup over all rounds so far."""
        if self.batches:
            self.speed = interval.speedup(self.baseline_us, self.contender_us, margin, waits)
        return self.speed

    def medians(self) -> tuple[float | None, float | None]:
        """(baseline, contender) microseconds per call."""
        if self.speed is None:
            return None, None
        return median(self.baseline_us), median(self.contender_us)


@dataclass
class Wait:
    """How much of a world's time its ranks spent waiting for a core."""

    waited: float = 0.0
    seconds: float = 0.0

    def share(self) -> float:
        """Between 0 and 0.9."""
        return min(self.waited / self.seconds, 0.9) if self.seconds else 0.0


@dataclass
class Looks:
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
