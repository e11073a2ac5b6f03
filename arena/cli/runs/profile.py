"""`pkb-arena profile`: why a kernel is slow, in one sentence a rank."""

from pathlib import Path

import click

from arena.cli.diagnostics import say
from arena.cli.options import json_option, kernel_argument, problem_argument, setting_options
from arena.cli.output import print_json, print_line
from arena.cli.runs.request import make_request
from arena.cli.session import open_session
from arena.foreign_text import printable
from arena.profile.chrome_trace import write_trace
from arena.profile.messages import Begins, ProfileRequest, Waits
from arena.profile.profiling import profile_ranks
from arena.profile.rules import RankFigures, figures, first_failure
from arena.profile.timeline import SIGNS, WORDS, Timeline, cells, median_call
from arena.setting_choice import Choice
from sandbox.protocol.profile import RankProfile
from sandbox.protocol.verdict import ExitCode

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
    reports = profile_ranks(
        ProfileRequest(
            setting=setting,
            kernel_name=Path(request.kernel_name).name,
            source=request.source,
            readable=[str(folder) for folder in session.settings.problem_folders],
        ),
        _tell,
    )
    found = figures(reports)
    failed = first_failure(reports)
    if trace is not None and failed is None:
        write_trace(trace, reports)
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


def _tell(message: Waits | Begins) -> None:
    if isinstance(message, Waits):
        say("a kernel is being timed on these devices; the profile waits for its turn")


def _print(reports: list[RankProfile], found: list[RankFigures]) -> None:
    timeline = median_call(reports)
    for at, rank in enumerate(found):
        print_line(f"rank {rank.rank}  {rank.call_us:8.0f} µs a call  {printable(rank.diagnosis)}")
        if timeline is not None:
            print_line(f"        {lane(timeline, at)}")
    legend = [f"{SIGNS[sort]} {words}" for sort, words in WORDS.items()]
    print_line(f"        {'   '.join(legend[:3])}")
    print_line(f"        {'   '.join(legend[3:])}   (the median call)")


def lane(timeline: Timeline, rank: int, width: int = _LANE) -> str:
    """One rank's part of a call as a line; all lanes have the same ends."""
    drawn = cells(timeline.lanes[rank], timeline.us, width)
    return "".join(SIGNS[sort] if sort else " " for sort in drawn).rstrip()
