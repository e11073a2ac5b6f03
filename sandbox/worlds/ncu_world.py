"""A world whose rank 0 runs under Nsight Compute. It is neither judged nor timed; it is killed afterwards."""

import os
import select
import shutil
import time
from pathlib import Path

import msgspec

from sandbox.jail.choice import Jail
from sandbox.machine.devices.kind import DeviceKind
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.profile import (
    APPLICATION,
    KERNEL,
    MOST_FILE,
    MOST_TEXT,
    NcuAnswer,
    NcuPlan,
    Replay,
    decode_answer,
    encode,
)
from sandbox.worlds.profiled_world import Place, ProfileFailed

SECTIONS = ["SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats", "WarpStateStats"]
REPLAYS = [
    Replay(mode=KERNEL, limit_s=60.0, launches=8, wait_ms=2_000, sections=SECTIONS),
    Replay(mode=APPLICATION, limit_s=360.0, launches=32, wait_ms=20_000, sections=SECTIONS),
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


def ncu_world(
    setting: Setting,
    kernel_name: str,
    kernel: Kernel,
    kind: DeviceKind,
    jail: Jail,
    ncu: str,
    readable: tuple[Path, ...] = (),
    replays: list[Replay] = REPLAYS,
) -> tuple[NcuAnswer, bytes]:
    """Profiles the launches of one call on rank 0. Takes minutes. Returns what ncu found, and the report file's bytes.

    Both are as untrusted as the kernel. The file is empty if no replay gave a report.

    Raises:
        ProfileFailed: the world sent no valid answer in time.
    """
    program = Path(ncu).resolve()
    if not any(program.is_relative_to(system) for system in SYSTEM):
        readable = (*readable, program.parent)
    with Place(setting, kernel, kind, jail, readable) as place:
        (answer, to_answer), (file, to_file) = place.pipe(), place.pipe()
        plan = NcuPlan(place.plan(kernel_name), ncu, to_answer, to_file, replays)
        place.start("sandbox.rank.profiling.ncu", encode(plan), (to_answer, to_file))
        deadline = time.monotonic() + sum(each.limit_s for each in replays) + MORE_S
        text, data = _read(answer, MOST_TEXT, deadline), _read(file, MOST_FILE, deadline)
        try:
            return decode_answer(text), data
        except msgspec.DecodeError:
            last = place.printed()[-1:] or ["it printed nothing"]
            raise ProfileFailed(f"the world under ncu sent no valid answer: {last[0]}") from None


def _read(end: int, most: int, deadline: float) -> bytes:
    """All bytes of a pipe. Raises ProfileFailed if they are too many or too late."""
    text = bytearray()
    while (left := deadline - time.monotonic()) > 0 and select.select([end], [], [], left)[0]:
        piece = os.read(end, 1 << 20)
        text += piece
        if len(text) > most:
            raise ProfileFailed(f"the world under ncu sent more than {most >> 20} MiB")
        if not piece:
            return bytes(text)
    raise ProfileFailed("the world under ncu did not end in time")
