"""All that the command line says on stdout: text for people, or nothing but JSON where JSON was asked for."""

import sys

import click
import msgspec

from arena.cli.diagnostics import wants_colour
from arena.errors import MachineError
from arena.foreign_text import printable
from arena.results import RunReport, one_line
from sandbox.events import Interval
from sandbox.verdict import Verdict

_SIGNS = {"faster": "▲", "slower": "▼", "even": "≈", "too noisy": "~"}
_COLOURS = {"faster": "green", "slower": "red"}


class OutputClosed(MachineError):
    """Nobody reads stdout any more, as after `| head`: no fault, but nothing more to do."""


def print_line(text: str = "") -> None:
    """A line for a person.

    Raises:
        OutputClosed: nobody reads stdout any more.
    """
    try:
        click.echo(text, color=wants_colour(sys.stdout))
    except BrokenPipeError:
        raise OutputClosed("stdout is closed") from None


def print_json(value: object) -> None:
    """One value as one line of JSON. Numbers that JSON has no word for become null.

    Raises:
        OutputClosed: nobody reads stdout any more.
    """
    try:
        click.echo(msgspec.json.encode(value).decode(), color=False)
    except BrokenPipeError:
        raise OutputClosed("stdout is closed") from None


def speedup_text(call: Interval | None, outcome: str) -> str:
    """ "▲ 1.42×  [1.39, 1.45]  faster", or nothing when nothing was timed."""
    if call is None:
        return ""
    sign = _SIGNS.get(outcome, "·")
    text = f"{sign} {call.median:.2f}×  [{call.low:.2f}, {call.high:.2f}]  {outcome}".rstrip()
    colour = _COLOURS.get(outcome)
    return click.style(text, fg=colour) if colour else text


def verdict_text(verdict: Verdict) -> str:
    """ "✓ PASS" or "✗ WRONG_RESULT"."""
    if verdict is Verdict.PASS:
        return click.style("✓ PASS", fg="green", bold=True)
    return click.style(f"✗ {verdict}", fg="red", bold=True)


def setting_text(report: RunReport) -> str:
    """ "13 gemm_allreduce · tiny · bfloat16 · world 2 · cpu"."""
    where = f"world {report.world} · {report.device}"
    return f"{report.id} {report.problem} · {report.preset} · {report.dtype} · {where}"


def compact(report: RunReport) -> str:
    """A run's result in one line."""
    call = report.speedup.call if report.speedup else None
    parts = [verdict_text(report.verdict), speedup_text(call, report.outcome)]
    if report.verdict is not Verdict.PASS:
        parts.append(report.detail)
    parts.append(f"({report.seconds.total:.2f} s)")
    return "  ".join(filter(None, parts))


def print_device_time(report: RunReport) -> None:
    """What is left of both times when launching costs nothing; no line where there is no such time."""
    device = report.speedup.device if report.speedup else None
    if device is None or report.baseline_us is None or report.contender_us is None:
        return
    base, mine = report.baseline_us.device or 0.0, report.contender_us.device or 0.0
    print_line(
        f"on the device {device.median:.2f}×  [{device.low:.2f}, {device.high:.2f}]"
        f"   baseline {base:.1f} µs   kernel {mine:.1f} µs"
    )


def print_report(report: RunReport) -> None:
    """A run's result for a person."""
    call = report.speedup.call if report.speedup else None
    print_line("   ".join(filter(None, [verdict_text(report.verdict), speedup_text(call, report.outcome)])))
    print_line(setting_text(report))
    if report.baseline_us and report.contender_us and report.baseline_us.call and report.contender_us.call:
        bound = (
            f"   {report.roofline.percent:.0f} % of the bound ({report.roofline.limiter})"
            if report.roofline
            else ""
        )
        print_line(
            f"baseline {report.baseline_us.call:.1f} µs   kernel {report.contender_us.call:.1f} µs a call"
            f"   {report.rounds} rounds{bound}"
        )
        print_device_time(report)
        for name, times in report.beside.items():
            on_device = f", {times.device:.1f} µs on the device" if times.device else ""
            print_line(f"beside it {name}: {times.call or 0:.1f} µs a call{on_device}")
    if report.error is not None and report.verdict is Verdict.PASS:
        rms = f"{report.error.rms:.2e}, the baseline's {report.error.baseline_rms:.2e}"
        print_line(f"error {rms}   paper rule: {report.paper_rule or 'not applied'}")
    if report.failure is not None:
        print_line(report.detail)
        text = printable(report.failure.text).strip("\n").rstrip()
        if text and one_line(text) != one_line(report.failure.message):
            print_line()
            print_line(text)
            print_line()
    elif report.verdict is not Verdict.PASS:
        print_line(report.detail)
    took = msgspec.structs.asdict(report.seconds)
    print_line("   ".join(f"{phase} {seconds:.2f} s" for phase, seconds in took.items()))
    facts = [
        "sealed" if report.sealed else "not sealed",
        f"jail {one_line(report.jail) or 'none'}",
        *report.labels,
    ]
    print_line(" · ".join(facts))
