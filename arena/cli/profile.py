"""`pkb-arena profile`: prints why a kernel is slow, one sentence per rank."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from arena.cli import options
from arena.cli.output import print_found, print_json, print_line, print_lines, say, while_it_is_read
from arena.cli.run import make_request
from arena.machine.calibration import peaks_for
from arena.paths import require_writable
from arena.profile.ncu import ncu_text
from arena.profile.profile_process import Profiled, ProfileRequest
from arena.profile.profiling import keep_profile, ncu_file, profile_ranks, profile_with_ncu
from arena.profile.report import profile_lines
from arena.profile.rules import first_failure
from arena.profile.timeline import SIGNS, LanePiece, cells, typical_call, write_trace
from arena.records.run_record import view
from arena.runs.judge import RunRequest
from arena.setting_choice import Choice
from sandbox.protocol.verdict import ExitCode

_LANE = 60
"""Width of a lane in cells."""


@click.command()
@options.problem_argument
@options.kernel_argument
@options.file_option("--trace", help="Write the spans as a trace that Perfetto and chrome://tracing open.")
@click.option(
    "--ncu",
    is_flag=True,
    help="Profile the launches of one call on rank 0 with Nsight Compute instead, and keep its report file.",
)
@options.setting_options
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, problem: str, kernel: Path, trace: Path | None, ncu: bool, choice: Choice, as_json: bool
) -> None:
    """Say why KERNEL is slow: one sentence a rank, from what it does during a few calls.

    It runs in a world of its own, in the same jail as a judged run, and is neither judged nor timed for a result. On GPUs
    the driver's counters come first: bytes over NVLink, and how busy SMs, tensor cores and memory are. All else
    comes from torch's profiler in the kernel's process, which the kernel could change. Exit code 1: a call failed.

    --ncu takes minutes, in the same jail: launches are repeated for every group of counters. Where that cannot be, because
    kernels wait for other ranks, the whole world is started again each time. NCCL's kernels are left out. Clocks are not
    locked.
    """
    if ncu and trace is not None:
        raise click.UsageError("--trace is of torch's profiler; leave it out with --ncu")
    if trace is not None:
        require_writable(trace)
    session = options.open_session()
    request = make_request(session, problem, kernel, choice, rounds=0)
    wanted = view(
        ProfileRequest, request,
        kernel_name=Path(request.kernel_name).name,
        readable=[str(folder) for folder in session.settings.problem_folders],
        peaks=peaks_for(session.paths.calibrations, request.setting),
    )  # fmt: skip
    if ncu:
        _print_ncu(session, request, wanted, as_json)
        return
    profiled = profile_ranks(wanted, _tell)
    if trouble := keep_profile(session.paths, wanted, profiled):
        say(trouble)
    reports = profiled.reports
    failed = first_failure(reports)
    if trace is not None and failed is None:
        write_trace(trace, reports)
    with while_it_is_read():
        if as_json:
            told = _about(request) | {"failed": failed.failed if failed else None, "outside": profiled.outside}
            told["ranks"] = [] if failed else profiled.ranks
            print_json(told | {"trace": str(trace) if trace and not failed else None})
        elif failed is not None:
            print_line(f"rank {failed.rank} failed:")
            print_line(failed.failed)
        else:
            print_line(_head(request) + ("" if profiled.gpu_figures else " · from the kernel's process"))
            _print(profiled)
    ctx.exit(ExitCode.KERNEL_FAILED if failed else ExitCode.PASS)


def _about(request: RunRequest) -> dict[str, object]:
    kernel = {"problem": request.problem.slug, "id": request.problem.id, "kernel": request.kernel_name}
    return {**kernel, "device": request.setting.device, "world": request.setting.world}


def _head(request: RunRequest) -> str:
    return f"{request.problem.id} {request.problem.slug} · {request.kernel_name}"


def _print_ncu(session: options.CliSession, request: RunRequest, wanted: ProfileRequest, as_json: bool) -> None:
    file = ncu_file(session.paths, request.problem.slug, wanted)
    say("Nsight Compute repeats every launch; this takes minutes")
    found = profile_with_ncu(msgspec.structs.replace(wanted, ncu_file=str(file)), _tell)
    print_found(as_json, _about(request) | {"ncu": found}, _head(request), *ncu_text(found))


def _tell(waits: bool) -> None:
    if waits:
        say("a kernel is being timed on these devices; the profile waits for its turn")


def _print(profiled: Profiled) -> None:
    timeline = typical_call(profiled.reports)
    last = len(profiled.ranks) - 1

    def lanes(at: int) -> list[str]:
        if timeline is None:
            return []
        drawn = [f"{'   GPU' if timeline.host_lanes else '':<8}{lane(timeline.lanes[at], timeline.us)}"]
        if timeline.host_lanes:
            drawn.append(f"  host  {lane(timeline.host_lanes[at], timeline.us)}")
        legend = [f"{SIGNS[sort]} {words}" for sort, words in timeline.words.items()]
        signs = [f"        {'   '.join(legend[:3])}", f"        {'   '.join(legend[3:])}   (a typical call)"]
        return [*drawn, *signs] if at == last else drawn

    print_lines(profile_lines(profiled, lanes))


def lane(pieces: Sequence[LanePiece], us: float, width: int = _LANE) -> str:
    """Draws one rank's part of a call of `us` microseconds as a line. All lanes span the same time."""
    return "".join(SIGNS[sort] if sort else " " for sort in cells(pieces, us, width)).rstrip()
