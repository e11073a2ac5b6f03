"""What a result says, worded once. The command line colours it, pages mark it up, prompts and cards join it.

A span is (role, text). Roles: GOOD, BAD, or empty. Texts may come from untrusted processes: clean them where they are written.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from arena.profile.report import joules_words
from arena.records.run_record import OtherSize, RunRecord
from arena.setting_choice import sizes_words
from arena.words.headline import (
    SIGNS,
    TOO_NOISY,
    WHERE,
    advice_words,
    by_clock,
    headline_of,
    outcome_words,
    single_calls_words,
)
from arena.words.untrusted_text import one_line, printable
from sandbox.protocol.events import BEYOND, Failure, Interval, Setting
from sandbox.protocol.result import Energy
from sandbox.protocol.verdict import Verdict
from sandbox.timing.conclusion import ends, percent
from sandbox.timing.interval import detectable_percent

GOOD, BAD = "good", "bad"
Span = tuple[str, str]
TIMES, CHECK, ELSEWHERE, HARNESS = "times", "check", "elsewhere", "harness"
NOISE = "to reduce noise"


class Fact(NamedTuple):
    """One statement about a result besides its verdict."""

    kind: str
    """TIMES, CHECK, ELSEWHERE (at other sizes) or HARNESS."""
    name: str
    text: str


def verdict_span(verdict: str) -> Span:
    """Returns "✓ PASS" or "✗ WRONG_RESULT"."""
    return (GOOD, "✓ PASS") if verdict == Verdict.PASS else (BAD, f"✗ {verdict}")


def speed_span(speedup: Interval, outcome: str, clock: str = "", said: bool = True) -> Span:
    """Returns "▲ 1.42× [1.39, 1.45] faster end-to-end"; without a figure if it is too noisy.

    clock: "call" or "device"; empty if it is not known. said: whether the outcome's words are in the text.
    """
    figure = "" if outcome == TOO_NOISY else f"{speedup.median:.2f}×"
    words = (
        SIGNS.get(outcome, "·"),
        figure,
        ends(speedup),
        outcome_words(outcome) if said else "",
        WHERE.get(clock, ""),
    )
    return _role(outcome), " ".join(filter(None, words))


def brief_speed(result: RunRecord | OtherSize | None) -> str:
    """Returns the text of `speed_span` for a result's headline; empty if nothing was timed."""
    speedup = by_clock(result.speedup, result.clock) if result is not None else None
    return speed_span(speedup, result.outcome, result.clock)[1] if result is not None and speedup is not None else ""


def told_parts(record: RunRecord) -> tuple[Span, str]:
    """Returns what both clocks say, and why single calls do not confirm it; both empty if nothing was timed."""
    why = single_calls_words(record.told)
    told = record.told.removesuffix(why).rstrip(". ")
    said = headline.outcome if (headline := headline_of(record)) is not None else record.outcome
    return (_role(said), f"{SIGNS.get(said, '·')} {told}" if told else brief_speed(record)), why


def _role(outcome: str) -> str:
    return {"faster": GOOD, "slower": BAD}.get(outcome, "")


def where_words(place: Any, overridden: Mapping[str, int] | None = None) -> str:
    """Returns "tiny M=7 · bfloat16 · world 2 · cpu". overridden: sizes that differ from the preset.

    place: a setting, or a record with these four fields.
    """
    return f"{sizes_words(place.preset, overridden or {})} · {place.dtype} · world {place.world} · {place.device}"


def setting_words(setting: Setting | OtherSize) -> str:
    """Returns "M=512 N=96 float32 world 2"."""
    sizes = " ".join(f"{name}={value}" for name, value in setting.sizes.items())
    return f"{sizes} {setting.dtype} world {setting.world}"


def facts(record: RunRecord, longer: str = "") -> list[Fact]:
    """Returns everything in a record besides the verdict, the conclusion and the failure, in the order to show it.

    longer: how the reader gets more rounds.
    """
    return [*_times(record, longer), *_check(record), *_elsewhere(record), *_harness(record)]


def _times(record: RunRecord, longer: str) -> list[Fact]:
    base, mine = record.baseline_us, record.contender_us
    found: list[tuple[str, str]] = []
    other = "other kernel" if record.rival else "baseline"
    for clock, where in WHERE.items():
        speedup = by_clock(record.speedup, clock)
        if speedup is not None:
            parts = [f"{speedup.median:.2f}× {ends(speedup)}"]
            if base is not None and mine is not None:
                parts.append(f"{other} {_us(getattr(base, clock))}, kernel {_us(getattr(mine, clock))} a call")
            parts.append(f"smallest detectable difference {percent(detectable_percent(speedup))}")
            found.append((where, "; ".join(parts)))
    if record.rounds:
        found.append(("rounds", str(record.rounds)))
    if record.roofline is not None:
        closed = record.gap_closed if record.outcome != TOO_NOISY else None
        gap = f"; {100 * closed:.0f} % of the gap between baseline and bound closed" if closed is not None else ""
        bound = f"{record.roofline.percent:.0f} % of the bound of {record.roofline.bound_us:.1f} µs"
        found.append(("roofline", f"{bound}, which {record.roofline.limiter} sets{gap}"))
    if record.advice:
        found.append((NOISE, advice_words(record.advice, longer) if longer else record.advice))
    if record.energy:
        found.append(("energy a call, all GPUs", _energy(record.energy, other)))
    for name, variant in record.beside.items():
        on_device = f", {_us(variant.device)} device time" if variant.device else ""
        found.append((f"baseline variant {name}", f"{_us(variant.call)} a call{on_device}"))
    return [Fact(HARNESS if name == NOISE else TIMES, name, text) for name, text in found]


def _us(value: float | None) -> str:
    return f"{value:.1f} µs" if value is not None else "–"


def _energy(energy: Energy, other: str) -> str:
    base, mine = energy.baseline, energy.contender
    if base is None or mine is None:
        return energy.missing
    off = 100 * max(base.error, mine.error)
    joules = f"{other} {joules_words(base.joules)}, kernel {joules_words(mine.joules)}"
    return f"{joules}; power of a GPU {base.watts:.0f} W and {mine.watts:.0f} W (±{off:.0f} %)"


def error_words(error: float) -> str:
    """ "1.82e-03", or "infinite" for an error without a bound."""
    return f"{error:.2e}" if error < BEYOND else "infinite"


def _check(record: RunRecord) -> list[Fact]:
    error = record.error
    if error is None:
        return []
    rms = f"rms {error_words(error.rms)} (the baseline's {error_words(error.baseline_rms)})"
    largest = f"largest {error_words(error.max)} (the baseline's {error_words(error.baseline_max)})"
    return [
        Fact(CHECK, "error against the float64 oracle", f"{rms}, {largest}"),
        Fact(CHECK, "paper rule", record.paper_rule or "not applied"),
    ]


def _elsewhere(record: RunRecord) -> list[Fact]:
    if not record.tried_other_sizes:
        return []
    found = [("other sizes", f"right in {len(record.others)} other settings, too")]
    if record.one_size_only:
        found = [("other sizes", "made for one size: right here, not everywhere")]
    elif not record.others:
        found = [("other sizes", "no other legal setting was found")]
    for other in record.others:
        told = brief_speed(other) if other.passed else f"{other.verdict}: {one_line(other.detail)}"
        found.append(("other size", f"{'✓' if other.passed else '✗'} {setting_words(other)} {told}".rstrip()))
    if record.holds_at_other_sizes:
        found.append(("faster at other sizes", record.holds_at_other_sizes))
    return [Fact(ELSEWHERE, *each) for each in found]


def _harness(record: RunRecord) -> list[Fact]:
    seconds = record.seconds
    took = ", ".join(f"{name} {getattr(seconds, name):.2f}" for name in seconds.__struct_fields__)
    isolation = f"jail {one_line(record.jail) or 'none'}, inputs {'sealed' if record.sealed else 'not sealed'}"
    labels = [("labels", ", ".join(record.labels))] if record.labels else []
    return [Fact(HARNESS, *each) for each in (*labels, ("seconds", took), ("isolation", isolation))]


def output_of(failure: Failure) -> str:
    """Returns the traceback or the compiler's output, without a first or last line that repeats the message."""
    message = printable(failure.message).strip()
    lines = printable(failure.text).strip("\n").rstrip().split("\n")
    first, last = lines[0].strip(), lines[-1].strip()
    # A message that was too long has lost its end. Then the first line repeats the traceback's last line.
    if len(lines) > 1 and first and (message.endswith(first) or first == last):
        lines = lines[1:]
    if lines[-1].strip() and message.endswith(lines[-1].strip()):
        lines = lines[:-1]
    return "\n".join(lines).strip("\n")
