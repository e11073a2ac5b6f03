"""`pkb-arena profile`: why a kernel is slow, in one sentence a rank."""

from pathlib import Path

import click

from arena.cli.options import json_option, kernel_argument, problem_argument, setting_options
from arena.cli.output import print_json, print_line
from arena.cli.runs.request import make_request
from arena.cli.session import open_session
from arena.errors import MachineError, UsageError
from arena.foreign_text import printable
from arena.paths import unwritable
from arena.profile.chrome_trace import chrome_trace
from arena.profile.rules import RankFigures, figures
from arena.setting_choice import Choice
from arena.workspace.atomic_file import write_atomically
from sandbox.jail.choice import choose
from sandbox.machine.devices import kind_of
from sandbox.protocol.profile import RankProfile
from sandbox.protocol.verdict import ExitCode
from sandbox.worlds.profile_world import ProfileFailed, profile_world

_LANE = 60
"""Cells of a lane."""


@click.command()
@problem_argument
@kernel_argument
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the spans as a trace that Perfetto and chrome://tracing open.",
)
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context, problem: str, kernel: Path, trace: Path | None, choice: Choice, as_json: bool
) -> None:
    """Say why KERNEL is slow: one sentence a rank, from what it does during a few calls. For CPU ranks.

    It runs in a world of its own, behind the same walls as a judged run, and is neither judged nor timed for a result. What
    is told is the kernel's own word: torch's profiler runs in the kernel's process. Exit code 1: a call failed.
    """
    session = open_session()
    request = make_request(session, problem, kernel, choice, rounds=0, budget=None)
    setting = request.setting
    kind = kind_of(setting.device)
    if kind.on_gpus:
        raise UsageError("a profile is made on CPU ranks", "add --device cpu")
    own = [Path(folder).resolve() for folder in session.settings.problem_folders]
    name = Path(request.kernel_name).name if request.source else "baseline.py"
    try:
        reports = profile_world(setting, name, request.source, kind, choose(), tuple(own))
    except ProfileFailed as error:
        raise MachineError(
            printable(str(error)), "`pkb-arena run` says whether the kernel is right and ends"
        ) from None
    found = figures(reports)
    failed = next((report for report in reports if report.failed), None)
    if trace is not None and failed is None:
        _write(trace, chrome_trace(reports))
    if as_json:
        print_json(
            {
                "problem": request.problem.slug,
                "id": request.problem.id,
                "kernel": request.kernel_name,
                "device": setting.device,
                "world": setting.world,
                "failed": failed.failed if failed else None,
                "ranks": [] if failed else found,
                "trace": str(trace) if trace and not failed else None,
            }
        )
    elif failed is not None:
        print_line(f"rank {failed.rank} failed:")
        print_line(printable(failed.failed))
    else:
        print_line(
            f"{request.problem.id} {request.problem.slug} · {request.kernel_name} · the kernel's own word"
        )
        _print(reports, found)
    ctx.exit(ExitCode.KERNEL_FAILED if failed else ExitCode.PASS)


def _print(reports: list[RankProfile], found: list[RankFigures]) -> None:
    for report, rank in zip(reports, found, strict=True):
        print_line(f"rank {rank.rank}  {rank.call_us:8.0f} µs a call  {printable(rank.diagnosis)}")
        print_line(f"        {lane(report, reports)}")
    print_line(
        "        █ in a collective or a barrier   ▒ an operation of torch   · other code   (the last call)"
    )


def lane(report: RankProfile, reports: list[RankProfile], cells: int = _LANE) -> str:
    """One rank's last call as a line; all lanes have the same ends."""
    last = [
        max((s for s in each.spans if s.kind == "call"), key=lambda s: s.start_us, default=None)
        for each in reports
    ]
    calls = [span for span in last if span is not None]
    if not calls:
        return ""
    begin = min(span.start_us for span in calls)
    length = max(span.start_us + span.us for span in calls) - begin or 1.0
    drawn = [" "] * cells
    for kind, sign in (("call", "·"), ("op", "▒"), ("wait", "█")):
        for span in report.spans:
            if span.kind == kind and span.start_us >= begin - 1e-6 and span.us / length * cells >= 0.2:
                first = int((span.start_us - begin) / length * cells)
                for cell in range(first, min(cells, first + max(1, round(span.us / length * cells)))):
                    drawn[cell] = sign
    return "".join(drawn).rstrip()


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise unwritable(path, error) from None
