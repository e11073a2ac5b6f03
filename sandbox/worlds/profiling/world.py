"""The world of a profile: started for it and killed after it. It is never timed."""

import contextlib
import os
import secrets
import select
import socket
import subprocess
import time
from pathlib import Path

import msgspec

from sandbox.jail import memory as bounds
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import python_module, python_path
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.placement import cores_of
from sandbox.machine.processes import kill_tree
from sandbox.protocol import profile
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel, write_read_only
from sandbox.protocol.profile import MOST_BYTES, ProfilePlan, RankProfile, WorldProfile, decode_report
from sandbox.worlds.first_process import FILES
from sandbox.worlds.profiling.window import counted_row
from sandbox.worlds.world_folder import WorldFolder

LIMIT_S = 90.0
"""From the start to the last report, with the import of torch and compilation."""
REPORT_S = 25.0
"""From the end of a row of calls to the last report; CUPTI starts within it."""
AFTER_FAILURE_S = 5.0
"""Limit for other reports after a rank has failed, because its peers may block in a collective."""
END_S = 10.0
OUTPUT_BYTES = 64 << 10
WARM, CALLS = 3, 5


class ProfileFailed(Exception):
    """No rank sent a report. The message has the reason and the last line that was printed."""


def profile_world(
    setting: Setting, kernel_name: str, kernel: Kernel, kind: DeviceKind, jail: Jail, readable: tuple[Path, ...] = ()
) -> WorldProfile:
    """Runs a kernel in a jailed world; returns the ranks' reports and, on GPUs, the driver's counters. Takes seconds.

    readable: the folder of a user's own problem.

    Raises:
        ProfileFailed: a rank sent no valid report in time.
    """
    folder = WorldFolder()
    with contextlib.ExitStack() as after:
        after.callback(folder.remove)
        files = folder.path / FILES
        if kernel.files:
            files.mkdir()
            write_read_only(files, kernel)
            readable = (*readable, files)
        gpus = kind.gpus(setting.world)
        if kind.on_gpus and len(gpus) < setting.world:
            raise ProfileFailed(f"{setting.world} ranks need {setting.world} GPUs; this machine has {len(gpus)}")
        pipes = [os.pipe() for _ in range(setting.world)]
        for end, _ in pipes:
            after.callback(os.close, end)
        sockets = [socket.socketpair() for _ in gpus]
        controls = [after.enter_context(ours) for ours, _ in sockets]
        theirs = [end.detach() for _, end in sockets]
        plan = ProfilePlan(
            setting=setting,
            source=kernel.source,
            kernel_name=kernel_name,
            kernel_folder=str(files) if kernel.files else "",
            device_module=kind.rank_module,
            folder=str(jail.profile.inside(folder.path)),
            cores=[list(cores_of(rank, setting.world, gpus)) for rank in range(setting.world)],
            reports=[end for _, end in pipes],
            controls=theirs,
            epoch_ns=time.time_ns(),
            seed=secrets.randbits(60),
            warm=WARM,
            calls=CALLS,
        )
        extra = {"PYTHONPATH": python_path()} | kind.environment(gpus)
        argv = python_module("sandbox.rank.profiling.main", profile.encode(plan).decode())
        wrapped = jail.wrap(argv, folder.path, extra, readable, kind.device_files(gpus))
        said = after.enter_context(open(folder.path.with_suffix(".out"), "w+b"))
        after.callback(Path(said.name).unlink)
        bound = bounds.Bound(jail.profile, folder.path, bounds.limit_bytes(setting.world * kind.host_bytes))
        after.callback(bound.close)
        process = subprocess.Popen(
            bound.starts(wrapped.argv),
            pass_fds=[*plan.reports, *theirs, *wrapped.fds],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=wrapped.env,
            cwd=folder.path,
            start_new_session=True,
        )
        after.callback(_end, process)
        for fd in (*plan.reports, *theirs):
            os.close(fd)
        wrapped.close()
        deadline = time.monotonic() + LIMIT_S
        outside = counted_row(controls, gpus, deadline) if kind.on_gpus else None
        if outside is not None:
            deadline = time.monotonic() + REPORT_S
        texts = _read([end for end, _ in pipes], deadline)
        said.seek(max(0, said.seek(0, os.SEEK_END) - OUTPUT_BYTES))
        lines = said.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        if outside is not None:
            last = next((line for line in reversed(lines) if "cupti" in line.lower()), last)
            return WorldProfile([_excused(rank, text, last) for rank, text in enumerate(texts)], outside)
        return WorldProfile(_reported(texts, last))


def _end(process: "subprocess.Popen[bytes]") -> None:
    kill_tree(process.pid)
    # Freeing a GPU's memory takes a while, and the profile does not need it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)


def _read(ends: list[int], deadline: float) -> list[bytes]:
    """The bytes of each pipe until its end, at most MOST_BYTES. The deadline is shorter after a rank has failed."""
    texts = {end: bytearray() for end in ends}
    waiting = set(ends)
    while waiting and (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select(list(waiting), [], [], left)
        for end in ready:
            piece = os.read(end, 1 << 16)
            texts[end] += piece
            if not piece or len(texts[end]) > MOST_BYTES:
                waiting.discard(end)
                if _failed(bytes(texts[end])):
                    deadline = min(deadline, time.monotonic() + AFTER_FAILURE_S)
    return [bytes(texts[end]) for end in ends]


def _failed(text: bytes) -> bool:
    try:
        return bool(decode_report(text).failed)
    except msgspec.DecodeError:
        return False


def _decoded(rank: int, text: bytes) -> RankProfile | None:
    """A rank's report; None if it sent none. Raises ProfileFailed if it is invalid or too long."""
    try:
        report = decode_report(text)
    except msgspec.DecodeError:
        return None
    if report.rank != rank or len(text) > MOST_BYTES:
        raise ProfileFailed(f"rank {rank} sent an invalid report")
    return report


def _reported(texts: list[bytes], last: str) -> list[RankProfile]:
    """All reports. If a rank has failed, others may be missing. last: the last line that the world printed."""
    found = [_decoded(rank, text) for rank, text in enumerate(texts)]
    if None in found and not any(report is not None and report.failed for report in found):
        raise ProfileFailed(f"rank {found.index(None)} sent no report in time: {last}")
    silent, now = "no report: it was still at work when another rank had failed", time.monotonic()
    return [report or RankProfile(rank, failed=silent, failed_at=now) for rank, report in enumerate(found)]


def _excused(rank: int, text: bytes, last: str) -> RankProfile:
    """A rank's report, or an empty one with the reason, so that the counters are shown in any case."""
    try:
        report = _decoded(rank, text) or RankProfile(rank, unseen="the rank sent no report of what it saw")
    except ProfileFailed as refused:
        report = RankProfile(rank, unseen=str(refused))
    if not report.unseen:
        return report
    return msgspec.structs.replace(report, unseen=f"{report.unseen}; last line printed: {last[:200]}")
