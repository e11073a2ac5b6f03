"""Output of the command line on stdout: text, or only JSON with --json."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click
import msgspec

from arena.cli.colour import green, red, rendered
from arena.cli.diagnostics import wants_colour
from arena.errors import MachineError
from arena.profile.gpu_words import joules_words
from arena.records.report_text import output_of
from arena.records.run_record import OtherSize, RunRecord
from arena.runs.other_sizes import setting_words
from arena.setting_choice import sizes_words
from arena.words.headline import (
    SIGNS,
    TOO_NOISY,
    WHERE,
    Headline,
    advice_words,
    by_clock,
    outcome_words,
    single_calls_words,
)
from arena.words.untrusted_text import escaped_json, one_line
from sandbox.protocol.verdict import Verdict
from sandbox.timing.conclusion import ends, percent
from sandbox.timing.interval import detectable_percent

_COLOURS = {"faster": green, "slower": red}


class OutputLost(MachineError):
    """Stdout cannot be written: the disk is full. Without a message: its reader is gone, as after `| head`."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise OutputLost("") from None
    except OSError as error:
        raise OutputLost(
            f"cannot write to stdout: {error.strerror}", "what was printed is incomplete; make room, and try again"
        ) from None


@contextmanager
def while_it_is_read() -> Iterator[None]:
    """Prints as long as stdout has a reader. The command then goes on to its exit code, as after `run ... | head -1`."""
    try:
        yield
    except OutputLost as error:
        if error.message:
            raise
        drop_output()


def drop_output() -> None:
    """Redirects stdout to the null device, so that the interpreter's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_line(text: str = "") -> None:
    """Prints a line of text.

    Raises:
        OutputLost: stdout cannot be written.
    """
    with _writing():
        colour = wants_colour(sys.stdout)
        click.echo(rendered(text, colour), color=colour)


def flush() -> None:
    """Flushes stdout. Raises as `print_line` does."""
    with _writing():
        sys.stdout.flush()


def print_json(value: object) -> None:
    """Prints a value as one line of JSON. Numbers that JSON cannot express become null.

    Raises:
        OutputLost: stdout cannot be written.
    """
    with _writing():
        click.echo(escaped_json(msgspec.json.encode(value).decode()), color=False)


def counted(count: int, thing: str) -> str:
    """Returns a number with its thing: "1 result", "2 results"."""
    return f"{count} {thing}{'s' * (count != 1)}"


def outcome_sign(outcome: str) -> str:
    """Returns the sign in front of a speedup."""
    return SIGNS.get(outcome, "·")


def speedup_text(headline: Headline) -> str:
    """Formats a speedup: "▲ 1.42×  [1.39, 1.45]  faster end-to-end"; only the interval if it is too noisy."""
    speedup, said = headline.speedup, f"{outcome_words(headline.outcome)} {headline.where}".rstrip()
    figure = "" if headline.outcome == TOO_NOISY else f"{speedup.median:.2f}×  "
    return _coloured(f"{figure}{ends(speedup)}  {said}", headline.outcome)


def told_text(report: RunRecord) -> str:
    """Returns the sign of the outcome and the conclusion of both clocks; "" if nothing was timed."""
    if report.told:
        return _coloured(report.told, report.outcome)
    speedup = by_clock(report.speedup, report.clock)
    return speedup_text(Headline(report.clock, report.outcome, speedup)) if speedup is not None else ""


def advice_text(report: RunRecord) -> str:
    """Returns what would improve the measurement: "more rounds (--rounds or --budget), a quieter machine"."""
    return advice_words(report.advice, "--rounds or --budget")


def _coloured(text: str, outcome: str) -> str:
    colour = _COLOURS.get(outcome)
    text = f"{outcome_sign(outcome)} {text}"
    return colour(text) if colour else text


def verdict_text(verdict: str) -> str:
    """Formats a verdict: "✓ PASS" or "✗ WRONG_RESULT"."""
    if verdict == Verdict.PASS:
        return green("✓ PASS", bold=True)
    return red(f"✗ {verdict}", bold=True)


def setting_text(report: RunRecord, overridden: Mapping[str, int]) -> str:
    """Formats problem and setting: "13 gemm_allreduce · tiny M=7 · bfloat16 · world 2 · cpu"."""
    where = f"world {report.world} · {report.device}"
    return f"{report.problem_id} {report.slug} · {sizes_words(report.preset, overridden)} · {report.dtype} · {where}"


def compact(report: RunRecord) -> str:
    """Formats a run's result in one line."""
    parts = [verdict_text(report.verdict), told_text(report)]
    if report.advice:
        parts.append(f"to reduce noise: {advice_text(report)}")
    if report.verdict is not Verdict.PASS:
        parts.append(report.detail)
    parts.append(f"({report.seconds.total:.2f} s)")
    return "  ".join(filter(None, parts))


def _clock_lines(report: RunRecord) -> list[str]:
    """Returns a line per clock: speedup, times of both kernels, smallest detectable difference."""
    if report.baseline_us is None or report.contender_us is None:
        return []
    lines = []
    for clock, base, mine in (
        ("call", report.baseline_us.call, report.contender_us.call),
        ("device", report.baseline_us.device, report.contender_us.device),
    ):
        speedup = by_clock(report.speedup, clock)
        if speedup is None:
            continue
        seen = f"   smallest detectable difference {percent(detectable_percent(speedup))}" if report.clock else ""
        other = "other kernel" if report.rival else "baseline"
        times = f"{other} {base or 0.0:.1f} µs   kernel {mine or 0.0:.1f} µs a call"
        lines.append(f"{WHERE[clock]:<12} {speedup.median:.2f}×  {ends(speedup)}   {times}{seen}")
    return lines


def other_sizes_lines(report: RunRecord) -> list[str]:
    """Lists the results of a kernel that passed in other settings; empty if they were not tried."""
    if isinstance(report.other_sizes, msgspec.UnsetType):
        return []
    lines = [_other_size_text(other) for other in report.other_sizes]
    head = f"right in {len(lines)} other settings, too" if lines else "no other legal setting was found"
    if report.one_size_only:
        head = "made for one size: right here, not everywhere"
    if held := report.holds_at_other_sizes:
        head += f"; faster at other sizes: {held}"
    return [head, *lines]


def _other_size_text(other: OtherSize) -> str:
    if not other.passed:
        return f"✗ {setting_words(other)}  {other.verdict}: {other.detail}"
    speedup = by_clock(other.speedup, other.clock)
    told = speedup_text(Headline(other.clock, other.outcome, speedup)) if speedup is not None else ""
    return f"✓ {setting_words(other)}  {told}".rstrip()


def energy_text(report: RunRecord) -> str:
    """Formats power and energy per call of both kernels, or why they are unknown; "" if not requested."""
    energy = report.energy
    if not energy:
        return ""
    if energy.baseline is None or energy.contender is None:
        return energy.missing
    other = "other kernel" if report.rival else "baseline"
    base, mine = energy.baseline, energy.contender
    off = 100 * max(base.error, mine.error)
    return (
        f"energy a call, all GPUs: {other} {joules_words(base.joules)}, kernel {joules_words(mine.joules)}; "
        f"power of a GPU {base.watts:.0f} W and {mine.watts:.0f} W (±{off:.0f} %)"
    )


def print_report(report: RunRecord, overridden: Mapping[str, int] | None = None) -> None:
    """Prints a run's result as text. overridden: sizes that differ from the preset."""
    single = single_calls_words(report.told)
    told = told_text(msgspec.structs.replace(report, told=report.told.removesuffix(single).rstrip(". ")))
    print_line("   ".join(filter(None, [verdict_text(report.verdict), told])))
    if single:
        print_line(single)
    print_line(setting_text(report, overridden or {}))
    if clocks := _clock_lines(report):
        bound = (
            f"   {report.roofline.percent:.0f} % of the bound ({report.roofline.limiter})" if report.roofline else ""
        )
        rounds = "1 round" if report.rounds == 1 else f"{report.rounds} rounds"
        for line in [*clocks, f"{rounds}{bound}"]:
            print_line(line)
        if report.advice:
            print_line(f"to reduce noise: {advice_text(report)}")
        if energy := energy_text(report):
            print_line(energy)
        for name, times in report.beside.items():
            on_device = f", {times.device:.1f} µs device time" if times.device else ""
            print_line(f"baseline variant {name}: {times.call or 0:.1f} µs a call{on_device}")
    if report.error is not None and report.verdict is Verdict.PASS:
        rms = f"{report.error.rms:.2e}, the baseline's {report.error.baseline_rms:.2e}"
        print_line(f"error {rms}   paper rule: {report.paper_rule or 'not applied'}")
    if report.failure is not None:
        print_line(report.detail)
        if text := output_of(report.failure):
            print_line()
            print_line(text)
            print_line()
    elif report.verdict is not Verdict.PASS:
        print_line(report.detail)
    if report.rival:
        print_line(f"other kernel: {verdict_text(report.rival.verdict)}  {report.rival.detail}".rstrip())
    for line in other_sizes_lines(report):
        print_line(line)
    took = msgspec.structs.asdict(report.seconds)
    print_line("   ".join(f"{phase} {seconds:.2f} s" for phase, seconds in took.items()))
    facts = ["sealed" if report.sealed else "not sealed", f"jail {one_line(report.jail) or 'none'}", *report.labels]
    print_line(" · ".join(facts))
