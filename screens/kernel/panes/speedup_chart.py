"""The speedup round by round: the median as a line, its 99 % interval as a band, the baseline at 1."""

import math
from collections.abc import Sequence
from typing import ClassVar

from sandbox.protocol.events import Interval, Timed
from screens.kernel.headline import WAITING
from screens.widgets.line_chart import ChartLine, LineChart, Point, scale_of

SPREAD = 1.5
"""Half-widths of the last interval by which the scale may exceed it on either side, to show earlier rounds."""


def intervals_of(samples: Sequence[Timed], clock: str = "") -> list[Interval | None]:
    """The speedup after each round: device time for "device" (None: not known by then), else end-to-end time."""
    return [sample.device if clock == "device" else sample.call for sample in samples]


def bounds_of(intervals: Sequence[Interval]) -> tuple[float, float]:
    """Lowest and highest speedup of the chart: the last interval, and the later medians, limited to near it.

    The wide intervals of the first rounds exceed the chart, so that the end is readable.
    """
    last = intervals[-1]
    if not (last.low > 0.0 and math.isfinite(last.high)):
        return scale_of(interval.median for interval in intervals)
    wide = (last.high / last.low) ** (SPREAD / 2)
    near = [min(max(each.median, last.low / wide), last.high * wide) for each in intervals[len(intervals) // 2 :]]
    return scale_of([last.low, last.high, *near])


def rounds_words(rounds: float) -> str:
    """The words of the x-axis."""
    return f"{rounds:.0f} round{'s' * (round(rounds) != 1)}" if rounds else "0"


class SpeedupChart(LineChart):
    """Redraws only when a round arrived."""

    EMPTY: ClassVar[tuple[str, ...]] = (
        "The speedup appears here when the kernel is correct and timed.",
        "No speedup yet.",
    )

    def show(
        self,
        samples: Sequence[Timed],
        clock: str = "",
        final: Interval | None = None,
        *,
        running: bool = True,
        waiting: str = "",
    ) -> None:
        """Draws the rounds so far by the headline's clock. An ended run fills the width.

        final: the speedup of the result, which is computed from all rounds; the line ends with it. waiting: what the run
        waits for.
        """
        known = [
            (number, interval)
            for number, interval in enumerate(intervals_of(samples, clock), 1)
            if interval is not None and interval.median > 0.0
        ]
        if known and final is not None:
            known[-1] = known[-1][0], final
        points = tuple(Point(number, each.median, each.low, each.high) for number, each in known)
        until = max(len(samples), samples[-1].rounds if running else 0) if samples else 1
        scale = bounds_of([interval for _, interval in known]) if known else (0.9, 1.1)
        empty = (f"{WAITING} ({waiting})", WAITING, "Waiting") if waiting else ()
        self.plot([ChartLine("one", points)], until=until, scale=scale, axis=rounds_words, empty=empty)
