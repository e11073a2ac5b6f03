"""The conclusion on speed from both clocks: end-to-end time, or device time if end-to-end time is too noisy."""

import math
from typing import NamedTuple

from sandbox.protocol.events import Interval
from sandbox.timing.interval import detectable_percent, half_width, outcome

SAME_SPEED = "same speed"
"""How the outcome "even" is shown."""
SINGLE_CALLS = "These are single calls"
"""Start of the sentence that says why a faster time of many calls does not count."""
MOST_PERCENT = 1000
"""Largest difference that is shown in percent."""
LEANS, LEANS_FIRST = 0.5, 0.25
"""A clock that shows no difference leans to one side if its estimate is so many half widths from 1. The second number is for
device time to be read first. On identical code either clock then says a difference in 0.7 % of runs, 0.8 % of duels (model)."""
ADVICE_ROUNDS = "more rounds"
ADVICE_RANKS = "fewer ranks than cores"
ADVICE_QUIET = "a quieter machine"


class Conclusion(NamedTuple):
    """The conclusion on a run's speed, in fields of its result."""

    outcome: str
    """ "faster", "slower", "even" or "too noisy"; empty when nothing was timed."""
    clock: str
    """The clock that gave the outcome: "call" or "device"; empty when nothing was timed."""
    told: str
    """The sentence; empty when nothing was timed."""
    advice: str
    """What would make the measurement less noisy; empty if no clock is too noisy."""


class Unconfirmed(NamedTuple):
    """The result of batches of many calls that single calls do not confirm."""

    speedup: Interval
    baseline_us: float = 0.0
    """A call of the baseline in these batches, in microseconds."""
    alone_us: float | None = None
    """A single call of the baseline in microseconds, if other work slowed the batches; else None."""


def conclude(
    call: Interval | None,
    device: Interval | None,
    ranks: int = 1,
    cores: int = 0,
    unconfirmed: Unconfirmed | None = None,
    why: str = "",
) -> Conclusion:
    """Draws the conclusion from end-to-end time, or from device time if only end-to-end time is too noisy.

    If the clocks disagree on who is faster, neither counts.

    unconfirmed: single calls do not confirm the result of batches of many calls; `call` is then the speedup of single
    calls. ranks, cores: CPU ranks and cores of the machine, to advise fewer ranks; cores 0: unknown or irrelevant.
    why: why end-to-end time claims nothing, if it was measured and `call` is None.
    """
    said = {name: interval for name, interval in (("call", call), ("device", device)) if interval is not None}
    if not said and not why:
        return Conclusion("", "", "", "")
    telling = [name for name, interval in said.items() if outcome(interval) != "too noisy"]
    advice = ""
    if len(telling) < len(said) or call is None:
        advice = ", ".join([ADVICE_ROUNDS, *([ADVICE_RANKS] if 0 < cores < ranks + 1 else []), ADVICE_QUIET])
    if call is not None and device is not None and _disagree(call, device):
        both = f"end-to-end {_figures(call)}, device time {_figures(device)}"
        return Conclusion(
            "too noisy", "call", f"no claim, the clocks disagree: {both}{_doubt(call, unconfirmed)}", advice
        )
    clock = telling[0] if telling else next(iter(said), "call")
    found = outcome(said[clock]) if said else "too noisy"
    return Conclusion(found, clock, _sentence(call, device, why) + _doubt(call, unconfirmed), advice)


def _disagree(call: Interval, device: Interval) -> bool:
    """Whether one clock claims that a side is faster, and the other says or leans to the opposite."""
    sides = [_side(interval) for interval in (call, device)]
    claims = any(outcome(interval) in ("faster", "slower") for interval in (call, device))
    return claims and sides[0] * sides[1] < 0


def _side(interval: Interval, leaning: str = "too noisy", least: float = LEANS) -> int:
    """1: the kernel is faster, or an interval with the outcome `leaning` leans to it; -1: the opposite; 0: neither."""
    middle = math.log(interval.median)
    leans = outcome(interval) == leaning and abs(middle) > least * half_width(interval)
    return (1 if middle > 0 else -1) if leans else {"faster": 1, "slower": -1}.get(outcome(interval), 0)


def first_clock(call: Interval | None, device: Interval | None) -> str:
    """ "device" if it shows a difference that end-to-end time neither shows nor excludes, but leans to; else empty.

    It is then what is read first, although the outcome is end-to-end time's.
    """
    if call is None or device is None or outcome(call) != "even" or outcome(device) not in ("faster", "slower"):
        return ""
    leans = _side(call, "even", LEANS_FIRST) == _side(device)
    return "device" if leans and device.low <= call.high and call.low <= device.high else ""


def _doubt(call: Interval | None, unconfirmed: Unconfirmed | None) -> str:
    """What single calls say about batches of many calls, to follow the sentence; empty if they confirm them."""
    if unconfirmed is None:
        return ""
    doubt = "contradict. Does a call work on inputs of later calls?"
    if call is None or outcome(call) == "too noisy":
        doubt = "are too noisy to confirm."
    elif unconfirmed.alone_us is not None:
        times = f"{unconfirmed.baseline_us:.0f} µs a call there, {unconfirmed.alone_us:.0f} µs alone"
        doubt = f"do not confirm. The baseline took {times}: other work slowed the batches."
    return f". {SINGLE_CALLS}: batches of many calls gave {_figures(unconfirmed.speedup)}, which single calls {doubt}"


def _sentence(call: Interval | None, device: Interval | None, why: str) -> str:
    """ "1.31× faster end-to-end [1.20, 1.43]; device time 1.10× [1.09, 1.12]"."""
    if call is not None and device is not None and first_clock(call, device):
        shown = f"{_figures(call)}, detects {percent(detectable_percent(call))}"
        return f"{clause(device, 'by device time')}; end-to-end no difference shown: {shown}"
    if call is not None and outcome(call) != "too noisy":
        return clause(call, "end-to-end") + (f"; {_beside(call, device)}" if device is not None else "")
    if device is not None and outcome(device) != "too noisy":
        noisy = "end-to-end time too noisy" if call is not None else f"end-to-end no claim: {why}" if why else ""
        return "; ".join(filter(None, [clause(device, "by device time"), noisy]))
    best = min(map(detectable_percent, filter(None, (call, device))), default=None)
    if best is None:
        return f"no claim: {why}"
    if best >= MOST_PERCENT:
        return f"too noisy: even a difference of {MOST_PERCENT // 100}× may not show"
    least = percent(best) if best < 100 else f"{1 + best / 100:.1f}×"
    return f"too noisy: only a difference above {least} would show"


def _figures(interval: Interval) -> str:
    """ "1.31× [1.20, 1.43]"."""
    return f"{ratio(interval.median)} {ends(interval)}"


def clause(interval: Interval, where: str) -> str:
    """ "1.31× faster end-to-end [1.20, 1.43]", or "same speed end-to-end 1.00× [0.98, 1.02], detects 4 %"."""
    match outcome(interval):
        case "faster":
            return f"{ratio(interval.median)} faster {where} {ends(interval)}"
        case "slower":
            return f"{ratio(interval.median)} slower {where} {ends(interval)}"
        case _:
            least = percent(detectable_percent(interval))
            return f"{SAME_SPEED} {where} {ratio(interval.median)} {ends(interval)}, detects {least}"


def _beside(call: Interval, device: Interval) -> str:
    """Device time in a few words, to follow end-to-end time."""
    said = outcome(device)
    if said == "too noisy":
        return "device time too noisy"
    word = f" ({SAME_SPEED if said == 'even' else said})" if said != outcome(call) else ""
    return f"device time {ratio(device.median)} {ends(device)}{word}"


def ratio(value: float) -> str:
    """ "1.31×", "0.08×", "0.0042×"."""
    return f"{value:.2f}×" if value >= 0.1 else f"{value:.2g}×"


def ends(interval: Interval) -> str:
    """ "[0.98, 1.02]", with up to four decimals if an end that is not 1 would be shown as 1; small ends have one digit."""
    digits = 2
    while digits < 4 and any(end != 1.0 and round(end, digits) == 1.0 for end in (interval.low, interval.high)):
        digits += 1
    low, high = (
        f"{end:.{digits}f}" if end >= 0.01 else f"{end:.1g}" if end >= 0.001 else "<0.001"
        for end in (interval.low, interval.high)
    )
    return f"[{low}, {high}]"


def percent(value: float) -> str:
    """ "8 %", "0.4 %"."""
    return f"{value:.1f} %" if value < 2 else f"{value:.0f} %" if value < MOST_PERCENT else f"{MOST_PERCENT} % or more"
