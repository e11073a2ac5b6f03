"""The headline of a run: its speedup by the clock that the conclusion names, and the words for outcomes and clocks."""

from typing import NamedTuple

from sandbox.protocol.events import Interval, Result, Speedup, Timed
from sandbox.timing.conclusion import ADVICE_ROUNDS, SAME_SPEED, SINGLE_CALLS, conclude, percent
from sandbox.timing.interval import detectable_percent, outcome

TOO_NOISY = "too noisy"
SIGNS = {"faster": "▲", "slower": "▼", "even": "≈", TOO_NOISY: "~"}
"""In front of a speedup, by its outcome."""
WHERE = {"call": "end-to-end", "device": "device time"}
"""The clock in words, behind a speedup. Results of older versions name no clock."""


def outcome_words(outcome: str) -> str:
    """An outcome as people read it: "same speed" for "even", else the outcome itself."""
    return SAME_SPEED if outcome == "even" else outcome


def brief_words(median: float, outcome: str) -> str:
    """ "1.42× faster"; "too noisy" without a figure, which would be read as the result."""
    words = outcome_words(outcome)
    return words if outcome == TOO_NOISY else f"{median:.2f}× {words}"


class Headline(NamedTuple):
    """What is said first of a run that was timed."""

    clock: str
    """ "call" or "device"; empty for results of older versions, whose headline was call time."""
    outcome: str
    """ "faster", "slower", "even" or "too noisy", by that clock."""
    speedup: Interval

    @property
    def where(self) -> str:
        """ "end-to-end", "device time", or nothing where the clock is not known."""
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


def detectable_words(speedup: Speedup | None) -> str:
    """ "smallest detectable difference: 15 % (end-to-end), 2 % (device time)"; empty when nothing was timed."""
    found = [
        f"{percent(detectable_percent(interval))} ({where})"
        for clock, where in WHERE.items()
        if (interval := by_clock(speedup, clock)) is not None
    ]
    return f"smallest detectable difference: {', '.join(found)}" if found else ""


def single_calls_words(told: str) -> str:
    """The part of a conclusion that says that single calls do not confirm faster batches of many; empty where they do."""
    _, said, why = told.partition(SINGLE_CALLS)
    return said + why


def advice_words(advice: str, how: str) -> str:
    """A result's advice, with how to get more rounds here: "more rounds (ctrl+l), a quieter machine"."""
    return advice.replace(ADVICE_ROUNDS, f"{ADVICE_ROUNDS} ({how})", 1)
