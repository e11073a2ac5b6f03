"""A world that is looked at and never timed: its ranks run a kernel under torch's profiler and report spans.

    python -m sandbox.rank.profile PLAN

Nothing here is judged: inputs need not be secret, and a report is the kernel's own word.
"""

import functools
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.profiler import profile, record_function

from problems.specification import load_problem
from sandbox.machine.processes import die_with_parent
from sandbox.protocol.profile import (
    MOST_SPANS,
    NAME_CHARACTERS,
    ProfilePlan,
    RankProfile,
    Span,
    decode_plan,
    encode,
)
from sandbox.rank.kernel.module import load_solution
from sandbox.rank.problem_code import ProblemCode

WAIT, CALL = "pkb.wait:", "pkb.call"
_COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv",
)  # fmt: skip


def main() -> None:
    """Forks the ranks and waits for them."""
    die_with_parent()
    plan = decode_plan(sys.argv[1])
    compat = str(Path(__file__).parents[1] / "kit" / "compat")
    sys.path.append(compat)
    torch.set_num_threads(1)
    devices = import_module(plan.device_module)
    launcher = os.getpid()
    pids = []
    for rank in range(plan.setting.world):
        pid = os.fork()
        if pid == 0:
            die_with_parent(launcher)
            _rank(plan, rank, devices.device(rank))
            os._exit(0)
        pids.append(pid)
    for report in plan.reports:
        os.close(report)
    for pid in pids:
        os.waitpid(pid, 0)


def _rank(plan: ProfilePlan, rank: int, device: Any) -> None:
    report = plan.reports[rank]
    for other in plan.reports:
        if other != report:
            os.close(other)
    os.sched_setaffinity(0, plan.cores[rank])
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan.setting.world)}
    try:
        found = _profile(plan, rank, device)
    except BaseException:
        found = RankProfile(rank, failed=traceback.format_exc()[-4000:], failed_at=time.monotonic())
    with os.fdopen(report, "wb") as stream:
        stream.write(encode(found))


def _profile(plan: ProfilePlan, rank: int, device: Any) -> RankProfile:
    folder = Path(plan.folder) / f"rank{rank}"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    device.join(rank, plan.setting.world, plan.folder)
    _mark_waits()
    setting = plan.setting
    code = ProblemCode(load_problem(Path(setting.problem_dir)))
    rank_setting = code.setting(
        setting.sizes, setting.preset, getattr(torch, setting.dtype), device.torch_device
    )
    solution = (
        load_solution(plan.source, str(folder / plan.kernel_name), code.problem.parameters)
        if plan.source
        else code.baseline
    )
    leaves = code.draw(rank_setting, plan.seed)
    for _ in range(plan.warm):
        code.call(solution, leaves, rank_setting)
    # torch.profiler.profile records the same and imports Inductor first: seconds, on every rank.
    with profile(use_kineto=True) as profiler:
        dist.barrier()  # profilers take different times to start
        code.call(solution, leaves, rank_setting)
        for _ in range(plan.calls):
            with record_function(CALL):
                code.call(solution, leaves, rank_setting)
    return _report(rank, profiler)


def _mark_waits() -> None:
    """Collectives of torch, and barriers and waits of the kit, are spans of their own."""
    for name in _COLLECTIVES:
        setattr(dist, name, _marked(name, getattr(dist, name)))
    from sandbox.kit.symmetric_memory.team import Team

    for name in ("barrier", "wait"):
        setattr(Team, name, _marked(f"symm.{name}", getattr(Team, name)))


def _marked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with record_function(f"{WAIT}{name}"):
            return function(*args, **kwargs)

    return called


def _report(rank: int, profiler: Any) -> RankProfile:
    """The outermost spans of the thread that calls: calls, waits in them, and operations beside the waits."""
    raw = [
        (event.start_ns(), event.start_ns() + event.duration_ns(), event.name(), event.start_thread_id())
        for event in profiler.kineto_results.events()
    ]
    calling = {thread for _, _, name, thread in raw if name == CALL}
    raw = sorted((each for each in raw if each[3] in calling), key=lambda each: (each[0], -each[1]))
    spans: list[Span] = []
    left_out = 0
    inside_call = inside = 0
    for start, end, name, _ in raw:
        if name == CALL:
            kind, inside_call = "call", end
        elif start >= inside_call or start < inside:
            continue
        else:
            kind, inside = ("wait" if name.startswith(WAIT) else "op"), end
        if left_out or len(spans) == MOST_SPANS:
            left_out += 1
            continue
        shown = "solution" if kind == "call" else name.removeprefix(WAIT)[:NAME_CHARACTERS]
        spans.append(Span(kind, shown, start / 1e3, (end - start) / 1e3))
    calls = [at for at, span in enumerate(spans) if span.kind == "call"]
    if left_out and len(calls) > 1:
        del spans[calls[-1] :]  # a call of which only a part is known would look short of work
    return RankProfile(rank, spans, left_out=left_out)


if __name__ == "__main__":
    main()
