"""The clock that the referee's side reads and sleeps by."""

from typing import Protocol


class TimeSource(Protocol):
    """What the referee's side uses of the module `time`, which is the one that runs use."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def perf_counter_ns(self) -> int:
        """Nanoseconds since some moment, with the best resolution there is."""

    def sleep(self, seconds: float, /) -> None:
        """Returns after so many seconds."""
