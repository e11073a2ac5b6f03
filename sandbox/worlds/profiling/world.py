"""The world of a profile: started for it and killed after it. It is never timed."""

import contextlib
import os
import select
import socket
import time
from pathlib import Path

import msgspec

from sandbox.jail.choice import Jail
from sandbox.machine.devices.kind import DeviceKind
from sandbox.protocol import profile
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.profile import MOST_BYTES, RankProfile, WorldProfile, decode_report
from sandbox.worlds.profiling.place import Place, ProfileFailed
from sandbox.worlds.profiling.window import counted_row

LIMIT_S = 90.0
"""Limit from the start to the last report. It includes the import of torch and compilation."""
REPORT_S = 25.0
"""Limit from the end of a row of calls to the last report. It includes the start of CUPTI."""
AFTER_FAILURE_S = 5.0
"""Limit for other reports after a rank has failed, because its peers may block in a collective."""


def profile_world(
    setting: Setting, kernel_name: str, kernel: Kernel, kind: DeviceKind, jail: Jail, readable: tuple[Path, ...] = ()
) -> WorldProfile:
    """Runs a kernel in a jailed world; returns the ranks' reports and, on GPUs, the driver's counters. Takes seconds.

    readable: the folder of a user's own problem.

    Raises:
        ProfileFailed: a rank's report is invalid, or all ranks ended without one.
    """
    with contextlib.ExitStack() as after:
        place = after.enter_context(Place(setting, kernel, kind, jail, readable))
        pipes = [place.pipe() for _ in range(setting.world)]
        sockets = [socket.socketpair() for _ in place.gpus]
        controls = [after.enter_context(ours) for ours, _ in sockets]
        theirs = [end.detach() for _, end in sockets]
        plan = msgspec.structs.replace(place.plan(kernel_name), reports=[end for _, end in pipes], controls=theirs)
        place.start("sandbox.rank.profiling.main", profile.encode(plan), (*plan.reports, *theirs))
        deadline = time.monotonic() + LIMIT_S
        outside = counted_row(controls, place.gpus, deadline) if kind.on_gpus else None
        if outside is not None:
            deadline = time.monotonic() + REPORT_S
        texts, at_work = _read([end for end, _ in pipes], deadline)
        lines = place.printed()
        last = lines[-1] if lines else ""
        if outside is not None:
            last = next((line for line in reversed(lines) if "cupti" in line.lower()), last)
            return WorldProfile([_excused(rank, text, last) for rank, text in enumerate(texts)], outside)
        return WorldProfile(_reported(texts, at_work, last))


def _read(ends: list[int], deadline: float) -> tuple[list[bytes], set[int]]:
    """The bytes of each pipe until its end, at most MOST_BYTES, and the ranks whose pipes were open at the deadline.

    The deadline is shorter after a rank has failed.
    """
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
    return [bytes(texts[end]) for end in ends], {rank for rank, end in enumerate(ends) if end in waiting}


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


def _reported(texts: list[bytes], at_work: set[int], last: str) -> list[RankProfile]:
    """All reports. If a rank has failed, others may be missing: those ranks have failed, too.

    at_work: the ranks that had not ended at the deadline. last: the last line that the world printed, or "".
    """
    found = [_decoded(rank, text) for rank, text in enumerate(texts)]
    if None in found and not any(report is not None and report.failed for report in found):
        if not at_work:
            raise ProfileFailed(f"rank {found.index(None)} ended without a report; {_printed(last)}")
        return [report or _late(rank, rank in at_work, last) for rank, report in enumerate(found)]
    silent, now = "no report: it was still at work when another rank had failed", time.monotonic()
    return [report or RankProfile(rank, failed=silent, failed_at=now) for rank, report in enumerate(found)]


def _printed(last: str) -> str:
    return f"last line printed: {last[:200]}" if last else "it printed nothing"


def _late(rank: int, at_work: bool, last: str) -> RankProfile:
    """The report of a rank that sent none. One that ended is the cause: the others may wait for it."""
    if not at_work:
        return RankProfile(rank, failed=f"it ended without a report; {_printed(last)}")
    hangs = f"TIMEOUT: no report within {LIMIT_S:g} s; the kernel hangs or is too slow; {_printed(last)}"
    return RankProfile(rank, failed=hangs, failed_at=time.monotonic())


def _excused(rank: int, text: bytes, last: str) -> RankProfile:
    """A rank's report, or an empty one with the reason, so that the counters are shown in any case."""
    try:
        report = _decoded(rank, text) or RankProfile(rank, unseen="the rank sent no report of what it saw")
    except ProfileFailed as refused:
        report = RankProfile(rank, unseen=str(refused))
    if not report.unseen:
        return report
    return msgspec.structs.replace(report, unseen=f"{report.unseen}; {_printed(last)}")
