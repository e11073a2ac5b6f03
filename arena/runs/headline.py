"""The headline of a run: its speedup by the clock that the verdict names, and the words for clocks and advice."""

from typing import NamedTuple

from sandbox.protocol.events import Interval, Result, Speedup, Timed
from sandbox.timing.conclusion import ADVICE_ROUNDS, conclude, percent
from sandbox.timing.interval import detectable_percent, outcome

SIGNS = {"faster": "▲", "slower": "▼", "even": "≈", "too noisy": "~"}
"""In front of a speedup, by its outcome."""
WHERE = {"call": "by calls", "device": "on the device"}
"""The clock in words, behind a speedup. Results of older versions name no clock."""


class Headline(NamedTuple):
    """What is said first of a run that was timed."""

    clock: str
    """ "call" or "device"; empty for results of older versions, whose headline was call time."""
    outcome: str
    """ "faster", "slower", "even" or "too noisy", by that clock."""
    speedup: Interval

    @property
    def where(self) -> str:
        """ "by calls", "on the device", or nothing where the clock is not known."""
        return WHERE.get(self.clock, "")


def by_clock(speedup: Speedup | None, clock: str) -> Interval | None:
    """The interval of one clock: "call", "device", or empty for call time."""
    if speedup is None:
        return None
    return speedup.device if clock == "device" else speedup.call


def headline_of(result: Result) -> Headline | None:
    """Of a finished run; None when nothing was timed."""
    speedup = by_clock(result.speedup, result.clock)
    if speedup is None:
        return None
    return Headline(result.clock, result.outcome or outcome(speedup), speedup)


def headline_so_far(sample: Timed) -> Headline:
    """Of a run that is being measured."""
    told = conclude(sample.call, sample.device)
    return Headline(
        told.clock, told.outcome, sample.device if told.clock == "device" and sample.device else sample.call
    )


def sees_words(speedup: Speedup | None) -> str:
    """ "would have seen 15 % by calls, 2 % on the device"; empty when nothing was timed."""
    found = [
        f"{percent(detectable_percent(interval))} {where}"
        for clock, where in WHERE.items()
        if (interval := by_clock(speedup, clock)) is not None
    ]
    return f"would have seen {', '.join(found)}" if found else ""


def advice_words(advice: str, how: str) -> str:
    """A result's advice, with how to get more rounds here: "more rounds (ctrl+l), a quieter machine"."""
    return advice.replace(ADVICE_ROUNDS, f"{ADVICE_ROUNDS} ({how})", 1)
