"""The world of a profile: its folder, jail and processes, started for it and killed after it. It is never timed."""

import contextlib
import math
import os
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from sandbox.jail import memory as bounds
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import python_module
from sandbox.machine import kernel_cache, nvml
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.gpu_counters import GpuCounters
from sandbox.machine.locked_folder import WORLD, LockedFolder
from sandbox.machine.nvml import NvmlMissing
from sandbox.machine.placement import RankGpu, cores_of
from sandbox.machine.processes import kill_tree
from sandbox.protocol import profile
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel, write_read_only
from sandbox.worlds.first_process import FILES, SHOWN, WorldSpec, started, wrapped_for

END_S = 10.0
OUTPUT_BYTES = 64 << 10
WARM, CALLS = 3, 5


class ProfileFailed(Exception):
    """There is no report. The message has the reason and, if it helps, the last printed line."""


class Place(contextlib.ExitStack):
    """A kernel's world, a context manager. On exit it kills every process that it started and removes all that it made."""

    def __init__(
        self,
        setting: Setting,
        kernel_name: str,
        kernel: Kernel,
        kind: DeviceKind,
        jail: Jail,
        readable: tuple[Path, ...] = (),
    ) -> None:
        """readable: the folder of a user's own problem. Raises ProfileFailed if there are too few GPUs."""
        super().__init__()
        self.gpus = kind.gpus(setting.world)
        if kind.on_gpus and len(self.gpus) < setting.world:
            raise ProfileFailed(f"{setting.world} ranks need {setting.world} GPUs; this machine has {len(self.gpus)}")
        self.world, self.kind, self.readable = setting.world, kind, readable
        self._setting, self._name, self._kernel, self._jail = setting, kernel_name, kernel, jail
        self._said: IO[bytes] | None = None

    def __enter__(self) -> "Place":
        folder = LockedFolder(WORLD)
        self.callback(folder.remove)
        self._path = folder.path
        self._files = folder.path / FILES
        return self

    def pipe(self) -> tuple[int, int]:
        """(the end to read from, the end for the world). The first is closed with the context."""
        ours, theirs = os.pipe()
        self.callback(os.close, ours)
        return ours, theirs

    def plan(self) -> profile.ProfilePlan:
        """The plan of the ranks, without descriptors."""
        return profile.ProfilePlan(
            setting=self._setting,
            source=self._kernel.source,
            kernel_name=self._name,
            kernel_folder=str(self._files) if self._kernel.files else "",
            device_module=self.kind.rank_module,
            folder=str(self._jail.profile.inside(self._path)),
            cores=[list(cores_of(rank, self.world, self.gpus)) for rank in range(self.world)],
            reports=[],
            controls=[],
            epoch_ns=time.time_ns(),
            seed=secrets.randbits(60),
            warm=WARM,
            calls=CALLS,
        )

    def start(self, module: str, plan: bytes, fds: Sequence[int]) -> None:
        """Starts the module in the jail with the plan as its argument. fds: it inherits them; they are closed here."""
        said = self._said = self.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        limit = bounds.limit_bytes(self.world * self.kind.host_bytes)
        bound = bounds.Bound(self._jail.profile, self._path, limit)
        self.callback(bound.close)
        spec = WorldSpec(self.world, self.kind, False, self._jail, self.readable, self.gpus)
        with wrapped_for(spec, python_module(module, plan.decode()), self._path) as wrapped:
            for cached in (kernel_cache.SHARED, self._kernel.sha256):
                kernel_cache.show(cached, self._path / SHOWN)
            if self._kernel.files:
                self._files.mkdir(exist_ok=True)
                write_read_only(self._files, self._kernel)
            out = said.fileno()
            self.callback(_end, started(bound, wrapped, self._path, subprocess.DEVNULL, out, out, fds))
        for fd in fds:
            os.close(fd)

    def printed(self) -> list[str]:
        """The last lines that the world has printed."""
        if self._said is None:
            return []
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - OUTPUT_BYTES))
        return self._said.read().decode(errors="replace").strip().splitlines()


def _end(process: "subprocess.Popen[bytes]") -> None:
    kill_tree(process.pid)
    # Freeing a GPU's memory takes a while, and the profile does not need it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)


LIMIT_S = 90.0
"""Limit from the start to the last report. It includes the import of torch and compilation."""
REPORT_S = 25.0
"""Limit from the end of a row of calls to the last report. It includes the start of CUPTI."""
AFTER_FAILURE_S = 5.0
"""Limit for other reports after a rank has failed, because its peers may block in a collective."""


def profile_world(place: Place) -> profile.WorldProfile:
    """Runs the kernel; returns the ranks' reports and, on GPUs, the driver's counters. Takes seconds.

    Raises:
        ProfileFailed: a rank's report is invalid, or all ranks ended without one.
    """
    with contextlib.ExitStack() as after:
        after.enter_context(place)
        pipes = [place.pipe() for _ in range(place.world)]
        sockets = [socket.socketpair() for _ in place.gpus]
        controls = [after.enter_context(ours) for ours, _ in sockets]
        theirs = [end.detach() for _, end in sockets]
        plan = msgspec.structs.replace(place.plan(), reports=[end for _, end in pipes], controls=theirs)
        place.start("sandbox.rank.profiling.main", profile.encode(plan), (*plan.reports, *theirs))
        deadline = time.monotonic() + LIMIT_S
        outside = counted_row(controls, place.gpus, deadline) if place.kind.on_gpus else None
        if outside is not None:
            deadline = time.monotonic() + REPORT_S
        texts, at_work = _read([end for end, _ in pipes], profile.MOST_BYTES, deadline)
        lines = place.printed()
        last = lines[-1] if lines else ""
        if outside is not None:
            last = next((line for line in reversed(lines) if "cupti" in line.lower()), last)
            return profile.WorldProfile([_excused(rank, text, last) for rank, text in enumerate(texts)], outside)
        return profile.WorldProfile(_reported(texts, at_work, last))


def _read(ends: list[int], most: int, deadline: float) -> tuple[list[bytes], set[int]]:
    """The bytes of each pipe until its end or until they are more than `most`, and the places of pipes open at the deadline.

    The deadline is shorter after a rank has failed.
    """
    texts = {end: bytearray() for end in ends}
    waiting = set(ends)
    while waiting and (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select(waiting, [], [], left)
        for end in ready:
            piece = os.read(end, 1 << 16)
            texts[end] += piece
            if not piece or len(texts[end]) > most:
                waiting.discard(end)
                if _failed(bytes(texts[end])):
                    deadline = min(deadline, time.monotonic() + AFTER_FAILURE_S)
    return [bytes(texts[end]) for end in ends], {rank for rank, end in enumerate(ends) if end in waiting}


def _failed(text: bytes) -> bool:
    try:
        return bool(profile.decode_report(text).failed)
    except msgspec.DecodeError:
        return False


def _decoded(rank: int, text: bytes) -> profile.RankProfile | None:
    """A rank's report; None if it sent none. Raises ProfileFailed if it is invalid or too long."""
    try:
        report = profile.decode_report(text)
    except msgspec.DecodeError:
        return None
    if report.rank != rank or len(text) > profile.MOST_BYTES:
        raise ProfileFailed(f"rank {rank} sent an invalid report")
    return report


def _reported(texts: list[bytes], at_work: set[int], last: str) -> list[profile.RankProfile]:
    """All reports. If a rank has failed, others may be missing: those ranks have failed, too.

    at_work: the ranks that had not ended at the deadline. last: the last line that the world printed, or "".
    """
    found = [_decoded(rank, text) for rank, text in enumerate(texts)]
    if None in found and not any(report is not None and report.failed for report in found):
        if not at_work:
            raise ProfileFailed(f"rank {found.index(None)} ended without a report; {_printed(last)}")
        return [report or _late(rank, rank in at_work, last) for rank, report in enumerate(found)]
    silent, now = "no report: it was still at work when another rank had failed", time.monotonic()
    return [report or profile.RankProfile(rank, failed=silent, failed_at=now) for rank, report in enumerate(found)]


def _printed(last: str) -> str:
    return f"last line printed: {last[:200]}" if last else "it printed nothing"


def _late(rank: int, at_work: bool, last: str) -> profile.RankProfile:
    """The report of a rank that sent none. One that ended is the cause: the others may wait for it."""
    if not at_work:
        return profile.RankProfile(rank, failed=f"it ended without a report; {_printed(last)}")
    hangs = f"TIMEOUT: no report within {LIMIT_S:g} s; the kernel hangs or is too slow; {_printed(last)}"
    return profile.RankProfile(rank, failed=hangs, failed_at=time.monotonic())


def _excused(rank: int, text: bytes, last: str) -> profile.RankProfile:
    """A rank's report, or an empty one with the reason, so that the counters are shown in any case."""
    try:
        report = _decoded(rank, text) or profile.RankProfile(rank, unseen="the rank sent no report of what it saw")
    except ProfileFailed as refused:
        report = profile.RankProfile(rank, unseen=str(refused))
    if not report.unseen:
        return report
    return msgspec.structs.replace(report, unseen=f"{report.unseen}; {_printed(last)}")


ROW_S, MOST_CALLS = 0.8, 40_000
"""Length of a row of calls in seconds, and its most calls. The energy counters change every 0.1 s."""
ROW_LIMIT_S = 20.0
"""Limit from the order for a row to its end."""


def counted_row(controls: Sequence[socket.socket], gpus: Sequence[RankGpu], deadline: float) -> profile.Outside | None:
    """Waits until all ranks are warm, starts a row of calls, and reads the counters over it.

    controls: sockets by rank. deadline: when the ranks must be warm, in time.monotonic. Returns None if a rank ended or
    was too slow.
    """
    said = _hear(controls, deadline)
    if said is None:
        return None
    calls = calls_in_row(said)
    missing: list[str] = []
    counters = _begun(gpus, missing)
    started = time.monotonic()
    if not _tell(controls, calls) or _hear(controls, started + ROW_LIMIT_S) is None:
        return None
    seconds = time.monotonic() - started
    counted = []
    if counters is not None:
        try:
            counted = counters.end()
        except NvmlMissing as refused:
            missing.append(f"nothing that the driver counts: {refused}")
    return profile.Outside(calls, seconds, counted, missing) if _tell(controls, 0) else None


def calls_in_row(said: Sequence[float]) -> int:
    """The number of calls of a row, from the ranks' untrusted seconds per call."""
    slowest = max((value for value in said if math.isfinite(value)), default=0.0)
    return max(1, min(MOST_CALLS, int(ROW_S / max(slowest, 1e-7))))


def _begun(gpus: Sequence[RankGpu], missing: list[str]) -> GpuCounters | None:
    try:
        by_minor = {gpu.minor: gpu for gpu in nvml.gpus()}
        counters = GpuCounters([by_minor[gpu.minor] for gpu in gpus])
        counters.begin()
    except NvmlMissing as refused:
        missing.append(f"nothing that the driver counts: {refused}")
        return None
    return counters


def _hear(controls: Sequence[socket.socket], deadline: float) -> list[float] | None:
    """Receives a number from every rank. Returns None if a rank is gone or too slow."""
    texts = dict.fromkeys(controls, b"")
    while waiting := [control for control in controls if len(texts[control]) < profile.SAID.size]:
        ready, _, _ = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        for control in ready:
            try:
                piece = control.recv(profile.SAID.size - len(texts[control]))
            except ConnectionError:
                return None
            if not piece:
                return None
            texts[control] += piece
    return [float(profile.SAID.unpack(texts[control])[0]) for control in controls]


def _tell(controls: Sequence[socket.socket], number: int) -> bool:
    """Sends a number to every rank. Returns False if a rank is gone."""
    try:
        for control in controls:
            control.sendall(profile.TOLD.pack(number))
    except ConnectionError:
        return False
    return True


SECTIONS = ["SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats", "WarpStateStats"]
REPLAYS = [
    profile.Replay(mode=profile.KERNEL, limit_s=60.0, launches=8, wait_ms=2_000, sections=SECTIONS),
    profile.Replay(mode=profile.APPLICATION, limit_s=360.0, launches=32, wait_ms=20_000, sections=SECTIONS),
]
MORE_S = 60.0
"""Seconds to read and send the report, in addition to the limits of all replays."""
SYSTEM = ("/usr", "/opt")
"""Folders that can be read in every jail."""
PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")


def find_ncu() -> str:
    """The path of ncu, which is the same inside the jail; empty if it is not installed."""
    if found := shutil.which("ncu"):
        return found
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [Path(home) / "bin"] if home else []
    for place in PLACES:
        folders += sorted(Path("/").glob(place.lstrip("/")), reverse=True)
    return next((str(folder / "ncu") for folder in folders if os.access(folder / "ncu", os.X_OK)), "")


def ncu_world(place: Place, ncu: str, replays: list[profile.Replay] = REPLAYS) -> tuple[profile.NcuAnswer, bytes]:
    """Profiles the launches of one call on rank 0. Takes minutes. Returns what ncu found, and the report file's bytes.

    Both are as untrusted as the kernel. The file is empty if no replay gave a report.

    Raises:
        ProfileFailed: the world sent no valid answer in time.
    """
    program = Path(ncu).resolve()
    if not any(program.is_relative_to(system) for system in SYSTEM):
        place.readable = (*place.readable, program.parent)
    with place:
        (answer, to_answer), (file, to_file) = place.pipe(), place.pipe()
        plan = profile.NcuPlan(place.plan(), ncu, to_answer, to_file, replays)
        place.start("sandbox.rank.profiling.ncu", profile.encode(plan), (to_answer, to_file))
        deadline = time.monotonic() + sum(each.limit_s for each in replays) + MORE_S
        text, data = _read_whole(answer, profile.MOST_TEXT, deadline), _read_whole(file, profile.MOST_FILE, deadline)
        try:
            return profile.decode_answer(text), data
        except msgspec.DecodeError:
            last = place.printed()[-1:] or ["it printed nothing"]
            raise ProfileFailed(f"the world under ncu sent no valid answer: {last[0]}") from None


def _read_whole(end: int, most: int, deadline: float) -> bytes:
    """All bytes of a pipe. Raises ProfileFailed if they are too many or too late."""
    (text,), late = _read([end], most, deadline)
    if len(text) > most:
        raise ProfileFailed(f"the world under ncu sent more than {most >> 20} MiB")
    if late:
        raise ProfileFailed("the world under ncu did not end in time")
    return text
