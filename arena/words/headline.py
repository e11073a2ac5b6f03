"""The headline of a run: its speedup by the clock that the conclusion names, and the words for outcomes and clocks."""

from typing import NamedTuple, overload

from sandbox.protocol.events import Interval, Microseconds, Speedup, Timed
from sandbox.protocol.result import BareResult
from sandbox.protocol.verdict import Verdict
from sandbox.timing.conclusion import ADVICE_ROUNDS, SAME_SPEED, SINGLE_CALLS, conclude, first_clock, percent, ratio
from sandbox.timing.interval import detectable_percent, outcome

TOO_NOISY = "too noisy"
SIGNS = {"faster": "▲", "slower": "▼", "even": "≈", TOO_NOISY: "~"}
"""The sign in front of a speedup, by its outcome."""
WHERE = {"call": "end-to-end", "device": "device time"}
"""The words for a clock after a speedup."""


_VERDICTS = {Verdict.PASS: "✓ PASS", Verdict.WRONG_RESULT: "✗ WRONG", Verdict.HARNESS_ERROR: "! HARNESS ERROR"}
_BRIEF = {
    "OUT_OF_MEMORY": "memory",
    "OUTPUT_FLOOD": "flood",
    "IMPOSSIBLE_SPEED": "too fast",
    "BASELINE_DISTURBED": "disturbed",
    "WRONG_STRUCTURE": "structure",
    "NO_KERNEL": "no kernel",
}


def verdict_words(verdict: Verdict) -> str:
    """The verdict with its sign: "✓ PASS", "✗ WRONG", "✗ COMPILE ERROR"."""
    return _VERDICTS.get(verdict, f"✗ {verdict.value.replace('_', ' ')}")


def brief_verdict(verdict: str) -> str:
    """The verdict in a word or two for a table, without a sign: "wrong", "compile", "too fast"."""
    return _BRIEF.get(verdict, verdict.lower().split("_")[0])


def factor(value: float) -> str:
    """A speedup with about three significant digits: "1.42", "0.88", "12.3", "157"."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def outcome_words(outcome: str) -> str:
    """Returns the outcome as it is shown: "same speed" for "even", else the outcome itself."""
    return SAME_SPEED if outcome == "even" else outcome


def brief_words(median: float, outcome: str) -> str:
    """ "1.42× faster"; "too noisy" without a figure, because readers would take the figure as the result."""
    words = outcome_words(outcome)
    return words if outcome == TOO_NOISY else f"{ratio(median)} {words}"


class Headline(NamedTuple):
    """The main result of a timed run: its speedup, with the clock and the outcome."""

    clock: str
    """ "call" or "device"."""
    outcome: str
    """ "faster", "slower", "even" or "too noisy", by that clock."""
    speedup: Interval

    @property
    def where(self) -> str:
        """ "end-to-end" or "device time"; empty if the clock is not known."""
        return WHERE.get(self.clock, "")


@overload
def by_clock(found: None, clock: str) -> None: ...
@overload
def by_clock(found: Speedup, clock: str) -> Interval | None: ...
@overload
def by_clock(found: Microseconds, clock: str) -> float | None: ...
def by_clock(found: Speedup | Microseconds | None, clock: str) -> Interval | float | None:
    """Returns the interval or the time of one clock: "device" for device time; "call" or empty for end-to-end time."""
    if found is None:
        return None
    return found.device if clock == "device" else found.call


def headline_of(result: BareResult) -> Headline | None:
    """Returns the headline of a finished run; None when nothing was timed."""
    found = result.speedup
    clock = result.clock if found is None else first_clock(found.call, found.device) or result.clock
    if (speedup := by_clock(found, clock)) is None:
        return None
    told = result.outcome if clock == result.clock else ""
    return Headline(clock, told or outcome(speedup), speedup)


def headline_so_far(sample: Timed) -> Headline:
    """Returns the headline of a run that is being measured."""
    told = conclude(sample.call, sample.device)
    if (first_clock(sample.call, sample.device) or told.clock) == "device" and sample.device is not None:
        return Headline("device", outcome(sample.device), sample.device)
    return Headline(told.clock, told.outcome, sample.call)


def detectable_words(speedup: Speedup | None) -> str:
    """ "smallest detectable difference: 15 % (end-to-end), 2 % (device time)"; empty when nothing was timed."""
    found = [
        f"{percent(detectable_percent(interval))} ({where})"
        for clock, where in WHERE.items()
        if (interval := by_clock(speedup, clock)) is not None
    ]
    return f"smallest detectable difference: {', '.join(found)}" if found else ""


def single_calls_words(told: str) -> str:
    """Returns the part of a conclusion about batches that single calls do not confirm; empty without such a part."""
    _, said, why = told.partition(SINGLE_CALLS)
    return said + why


def advice_words(advice: str, how: str) -> str:
    """Adds to a result's advice how to get more rounds: "measure longer (ctrl+l), a quieter machine"."""
    return advice.replace(ADVICE_ROUNDS, f"measure longer ({how})" if how else "measure longer", 1)
