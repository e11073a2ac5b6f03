"""Runs a kernel under torch's profiler on all ranks of a world, and reports the spans.

    python -m sandbox.rank.profiling.main PLAN

On GPUs the ranks first make calls in a row without a profiler, while the referee's side reads the driver's counters
(sandbox/worlds/profiled_world.py). Inputs need not be secret, because a profile is never judged.
"""

import os
import socket
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.profiler import profile, record_function

from sandbox.kit import cpp, cuda
from sandbox.kit.compilers import stamps
from sandbox.machine.processes import die_with_parent, forked
from sandbox.protocol.profile import MOST_SPANS, SAID, TOLD, WORK, ProfilePlan, RankProfile, Span, decode_plan, encode
from sandbox.rank import kernel_compilers
from sandbox.rank.launcher import find_compat
from sandbox.rank.profiling.loading import ProfiledCalls, enter_world, failure, loaded_calls
from sandbox.rank.profiling.spans import CALL, DRAIN, WAIT, cpp_events, gpu_spans, host_spans, recorded, stamp_spans

WARM_ROW = 3
"""Calls from which the time of one is measured."""
NOTHING_SEEN = (
    "torch's profiler saw no work of the GPU: CUPTI, which reports it, did not start in the jail of the world, "
    "or nothing was launched"
)
_COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv",
)  # fmt: skip


_CPP_CALLS: "deque[tuple[str, int, int, cpp.Waits]]" = deque(maxlen=MOST_SPANS)
"""The last calls of compiled C++: name, begin, end, waits."""


def main() -> None:
    """Forks the ranks and waits for their end."""
    die_with_parent()
    plan = decode_plan(sys.argv[1])
    find_compat()
    torch.set_num_threads(1)
    devices = import_module(plan.device_module)
    pids = [forked(partial(_rank, plan, rank, devices)) for rank in range(plan.setting.world)]
    for end in (*plan.reports, *plan.controls):
        os.close(end)
    for pid in pids:
        os.waitpid(pid, 0)


def _rank(plan: ProfilePlan, rank: int, devices: ModuleType) -> None:
    report = plan.reports[rank]
    for ends in (plan.reports, plan.controls):
        for other, end in enumerate(ends):
            if other != rank:
                os.close(end)
    try:
        found = _profile(plan, rank, devices.device(rank))
    except BaseException as error:
        found = RankProfile(rank, failed=failure(error, plan, rank)[-4000:], failed_at=time.monotonic())
    with os.fdopen(report, "wb") as stream:
        stream.write(encode(found))


def _profile(plan: ProfilePlan, rank: int, device: Any) -> RankProfile:
    enter_world(plan, rank, device, plan.folder)
    _mark_waits()
    _mark_extensions()
    kernel_compilers.watch()
    if not plan.controls:
        cpp.watch = _note_cpp
    if plan.controls and _has_stamps(plan):
        stamps.begin(device.torch_device)
    calls = loaded_calls(plan, rank, device, rotate=bool(plan.controls))
    calls.make(plan.warm)
    if not plan.controls:
        return _recorded_on_host(plan, rank, calls)
    with socket.socket(fileno=plan.controls[rank]) as control:
        _row(control, calls, device)
    return _recorded_on_gpu(plan, rank, calls, device)


def _has_stamps(plan: ProfilePlan) -> bool:
    files = [path for path in Path(plan.kernel_folder).rglob("*") if path.is_file()] if plan.kernel_folder else []
    return stamps.CALL in plan.source or any(stamps.CALL.encode() in path.read_bytes() for path in files)


def _recorded_on_host(plan: ProfilePlan, rank: int, calls: ProfiledCalls) -> RankProfile:
    plain_us = _plain_us(calls, plan.calls)
    # torch.profiler.profile would first import Inductor, which takes seconds on every rank.
    with profile(use_kineto=True) as profiler:
        dist.barrier()  # profilers start at different times
        calls.make(1)
        for _ in range(plan.calls):
            prepared = calls.prepared()
            with record_function(CALL):
                prepared()
    events = recorded(profiler.kineto_results.events())
    thread = next((event.thread for event in events if event.name == CALL), 0)
    events += [event for call in _CPP_CALLS for event in cpp_events(*call, thread=thread)]
    events.sort(key=lambda event: (event.start, -event.end))
    spans, left_out = host_spans(events, plan.epoch_ns)
    return RankProfile(rank, spans, plain_us=plain_us, left_out=left_out)


def _plain_us(calls: ProfiledCalls, count: int) -> float:
    """Microseconds of a call without the profiler, which slows short calls down: the median of `count` calls."""
    took = []
    for _ in range(count):
        prepared = calls.prepared()
        started = time.perf_counter()
        prepared()
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e6


def _row(control: socket.socket, calls: ProfiledCalls, device: Any) -> None:
    """Makes a row of calls. The referee's side chooses their number and reads counters meanwhile."""
    device.synchronize()
    started = time.monotonic()
    calls.make(WARM_ROW)
    device.synchronize()
    control.sendall(SAID.pack((time.monotonic() - started) / WARM_ROW))
    (count,) = TOLD.unpack(_told(control))
    calls.make(count)
    device.synchronize()
    control.sendall(SAID.pack(0.0))
    _told(control)


def _told(control: socket.socket) -> bytes:
    text = control.recv(TOLD.size, socket.MSG_WAITALL)
    if len(text) < TOLD.size:
        raise ConnectionError("the profile was stopped because another rank has ended")
    return text


def _recorded_on_gpu(plan: ProfilePlan, rank: int, calls: ProfiledCalls, device: Any) -> RankProfile:
    """The profile of a rank on a GPU. Each call ends when its GPU is done. A failing profiler does not affect the counters."""
    profiler, why = _started()
    # All ranks continue or none, because calls would block if one rank were missing.
    started = torch.tensor([int(not why)], device=device.torch_device)
    dist.all_reduce(started, op=dist.ReduceOp.MIN)
    if not int(started):
        return RankProfile(rank, unseen=why or "torch's profiler did not start on another rank")
    calls.make(1)
    offset_ns, stamp_ns = _stamp_clock(device)
    stamps.take()
    device.synchronize()
    dist.barrier()
    noted: list[Span] = []
    for _ in range(plan.calls):
        prepared = calls.prepared()
        noted += stamp_spans(stamps.taken(), offset_ns - plan.epoch_ns)
        device.synchronize()
        with record_function(CALL):
            prepared()
        with record_function(DRAIN):
            device.synchronize()
    try:
        profiler.__exit__(None, None, None)
        events = recorded(profiler.kineto_results.events())
        noted += stamp_spans(stamps.taken(), offset_ns - plan.epoch_ns)
        spans, left_out, off_us = gpu_spans(events, plan.epoch_ns, noted)
    except Exception as error:
        return RankProfile(rank, unseen=f"torch's profiler recorded no readable events: {_line(error)}")
    if not any(span.kind in WORK for span in spans):
        return RankProfile(rank, unseen=NOTHING_SEEN)
    return RankProfile(rank, spans, left_out=left_out, clock_us=off_us, stamp_us=stamp_ns / 1e3)


def _stamp_clock(device: Any) -> tuple[int, int]:
    """The offset and error of stamps.clock; zeros for a kernel without stamps."""
    if not stamps.wanted():
        return 0, 0
    module: Any = cuda.compile(stamps.CLOCK)
    return stamps.clock(module.px_gpu_clock[1, 1], device.torch_device)


def _started() -> tuple[Any, str]:
    """The started profiler of torch, or None and the reason."""
    try:
        profiler: Any = profile(use_kineto=True, use_device="cuda")
        profiler.__enter__()
    except Exception as error:
        return None, f"torch's profiler did not start: {_line(error)}"
    return profiler, ""


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _note_cpp(name: str, begin: int, end: int, waits: "cpp.Waits") -> None:
    if threading.current_thread() is threading.main_thread():
        _CPP_CALLS.append((name, begin, end, waits))


def _mark_waits() -> None:
    """Marks collectives of torch, and barriers and waits of the kit, as spans."""
    for name in _COLLECTIVES:
        setattr(dist, name, _marked(f"{WAIT}{name}", getattr(dist, name)))
    from sandbox.kit.symmetric_memory.team import Team

    for name in ("barrier", "wait"):
        setattr(Team, name, _marked(f"{WAIT}symm.{name}", getattr(Team, name)))


def _mark_extensions() -> None:
    """Marks calls of extension modules that the kernel has compiled: torch's profiler does not record them as such."""
    loaded = ExtensionFileLoader.exec_module

    def load(loader: ExtensionFileLoader, module: ModuleType) -> None:
        loaded(loader, module)
        if not loader.path.startswith((sys.prefix, sys.base_prefix)):
            for name, function in [*vars(module).items()]:
                if callable(function) and not isinstance(function, type):
                    setattr(module, name, _marked(f"C++ {name}", function))

    ExtensionFileLoader.exec_module = load  # type: ignore[method-assign, assignment]


def _marked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            return function(*args, **kwargs)

    return called


if __name__ == "__main__":
    main()
