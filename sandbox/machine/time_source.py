"""The clock of the referee's side, which tests replace."""

from typing import Protocol


class TimeSource(Protocol):
    """The functions of the module `time` that the referee's side uses."""

    def monotonic(self) -> float:
        """Seconds since a fixed moment."""

    def perf_counter_ns(self) -> int:
        """Nanoseconds since a fixed moment, with the best resolution."""

    def sleep(self, seconds: float, /) -> None:
        """Blocks for this many seconds."""
