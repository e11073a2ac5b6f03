"""A row of a table of runs, and what such a table is made of."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from arena.store import BASELINE
from arena.yardsticks import WORDS
from problems.specification import Problem
from sandbox.events import Interval, Microseconds, Speedup
from sandbox.verdict import Verdict

Tell = Callable[[str], None]
REFUSED = "REFUSED"
"""In the place of a verdict: the setting was not one to run in."""


@dataclass(frozen=True)
class Scope:
    """What was asked: these problems (none: the table's own), this many ranks (None: all GPUs) and rounds."""

    problems: tuple[Problem, ...] = ()
    world: int | None = None
    rounds: int | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run. Microseconds in `*_us`; speedups over the baseline as called. world 0: it was refused."""

    id: int
    problem: str
    size: str
    sizes: dict[str, int]
    world: int
    dtype: str
    kernel: str
    verdict: str
    outcome: str = ""
    detail: str = ""
    rounds: int = 0
    baseline_us: Microseconds | None = None
    kernel_us: Microseconds | None = None
    speedup: Speedup | None = None
    seconds: float = 0.0

    @property
    def fault(self) -> bool:
        """It should have passed, and the baseline is never faster than itself. Not every baseline can be captured in a graph, and
        not every problem runs in every world."""
        if self.kernel == BASELINE and self.outcome == "faster":
            return True
        if self.kernel in WORDS:
            return self.verdict == Verdict.HARNESS_ERROR
        return self.verdict not in (Verdict.PASS, REFUSED)

    def text(self) -> str:
        """One line of the table under `HEADER`."""
        speedup = self.speedup
        detail = (
            "" if self.verdict == Verdict.PASS else self.detail.splitlines()[0][:110] if self.detail else ""
        )
        cells = [
            f"{self.id:02d} {self.problem}"[:28].ljust(28),
            self.size.rjust(10),
            self.kernel.ljust(27),
            self.verdict.ljust(14),
            _microseconds(self.baseline_us, "call"),
            _microseconds(self.baseline_us, "device"),
            _microseconds(self.kernel_us, "call"),
            _microseconds(self.kernel_us, "device"),
            _ratio(speedup.call if speedup else None),
            _ratio(speedup.device if speedup else None),
            detail,
        ]
        return "  ".join(cells).rstrip()


HEADER = "  ".join(
    (
        "problem".ljust(28),
        "size".rjust(10),
        "kernel".ljust(27),
        "verdict".ljust(14),
        *(name.rjust(9) for name in ("A call", "A device", "call", "device")),
        *(name.ljust(19) for name in ("speedup, call", "speedup, device")),
    )
)
"""Times in microseconds; A is the baseline as called."""


def _microseconds(times: Microseconds | None, clock: str) -> str:
    value = None if times is None else times.call if clock == "call" else times.device
    return ("–" if value is None else f"{value:.1f}").rjust(9)


def _ratio(interval: Interval | None) -> str:
    if interval is None:
        return "–".ljust(19)
    return f"{interval.median:.2f} [{interval.low:.2f}, {interval.high:.2f}]".ljust(19)
