"""Placement of the ranks of a world: cores, and GPUs with their device files and faults."""

import os
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sandbox.machine import nvml

CORES, OFF_STEP = 4, 4
"""Most cores of a rank; turns after which cores and reference worlds are out of step."""


@dataclass(frozen=True)
class RankGpu:
    """One rank's GPU. minor: N of /dev/nvidiaN; uuid: for CUDA_VISIBLE_DEVICES, empty if NVML is not available.

    cores: near this GPU, and used for no other, so that worlds on different GPUs share no core; empty if unknown.
    """

    minor: int
    uuid: str = ""
    cores: tuple[int, ...] = ()


def rank_gpus(ranks: int) -> tuple[RankGpu, ...]:
    """The GPUs of a world by rank: the first of CUDA_VISIBLE_DEVICES; fewer if the machine has fewer."""
    return _rank_gpus(ranks, os.environ.get("CUDA_VISIBLE_DEVICES"))


@lru_cache(maxsize=16)
def _rank_gpus(ranks: int, allowed: str | None) -> tuple[RankGpu, ...]:
    try:
        all_gpus = nvml.gpus()
        near = _near(all_gpus)
        found = [RankGpu(gpu.minor, gpu.uuid, near[gpu.minor]) for gpu in nvml.visible(all_gpus, allowed)]
    except nvml.NvmlMissing:
        # Without NVML, the device files are taken to be in the driver's order, as on most machines.
        numbers = range(ranks) if allowed is None else map(int, re.findall(r"\d+", allowed))
        found = [RankGpu(number) for number in numbers]
    return tuple(found[:ranks])


def gpu_device_files(gpus: Sequence[RankGpu]) -> tuple[str, ...]:
    """The device files that a world needs for these GPUs alone."""
    if not gpus:
        return ()
    shared = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
    return (*(f"/dev/nvidia{gpu.minor}" for gpu in gpus), *shared)


def cuda_environment(gpus: Sequence[RankGpu]) -> dict[str, str]:
    """Variables that restrict CUDA to these GPUs, as 0, 1, 2..., and load a kernel's code at its first call.

    Loading all code at the start doubles the start time of a world and takes five times the memory. A first call behind a
    closed gate would block on its code, so every call runs once before the gate closes.
    """
    found = {"CUDA_MODULE_LOADING": "LAZY"}
    if gpus and all(gpu.uuid for gpu in gpus):
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
    return found


def cores_of(rank: int, ranks: int, gpus: Sequence[RankGpu] = ()) -> list[int]:
    """The cores of a rank, the same in every world: those of its GPU, or a share of all."""
    if gpus and all(gpu.cores for gpu in gpus):
        return list(gpus[rank].cores)
    cores = sorted(os.sched_getaffinity(0))
    if ranks > len(cores):
        return [cores[rank % len(cores)]]
    share = min(len(cores) // ranks, CORES)
    return cores[rank * share : (rank + 1) * share]


def _near(gpus: Sequence[nvml.Gpu]) -> dict[int, tuple[int, ...]]:
    """Cores near each GPU by minor number, without overlap; empty if there are fewer cores than GPUs."""
    ours = frozenset(os.sched_getaffinity(0))
    sides: dict[frozenset[int], list[nvml.Gpu]] = {}
    for gpu in gpus:
        sides.setdefault(ours & nvml.near_cores(gpu) or ours, []).append(gpu)
    found = {}
    for side, members in sides.items():
        cores, share = sorted(side), min(len(side) // len(members), CORES)
        for place, gpu in enumerate(members):
            found[gpu.minor] = tuple(cores[place * share : (place + 1) * share])
    return found


def core_in_turn(share: Sequence[int], turn: int) -> int:
    """The core of a rank's share in a turn. Cores rotate, and not in step with reference worlds, which take turns, too.

    share: at least one core.
    """
    return share[(turn + turn // OFF_STEP) % len(share)]


GONE_SECONDS = 5.0
"""Limit for a killed process's context to disappear. It usually takes 0.1 s."""
_CHECK_SECONDS = 0.005


def gpu_fault(ours: Sequence[RankGpu], pids: Collection[int], seconds: float = GONE_SECONDS) -> str:
    """The fault that prevents the next run on these GPUs, in one line; empty if there is none or NVML is missing.

    pids: the killed world's ranks. Waits until none of them has a context on any of the GPUs.
    """
    try:
        gpus = [gpu for gpu in nvml.gpus() if gpu.minor in {rank.minor for rank in ours}]
        until = time.monotonic() + seconds
        while held := [gpu.index for gpu in gpus if nvml.compute_pids(gpu) & set(pids)]:
            if time.monotonic() > until:
                return f"a killed kernel still holds GPU {', '.join(map(str, held))} after {seconds:.0f} s"
            time.sleep(_CHECK_SECONDS)
        for gpu in gpus:
            if words := nvml.recovery(gpu):
                return f"GPU {gpu.index}: {words}"
    except nvml.NvmlMissing as missing:
        # `doctor` reports that NVML is missing. The oracle world's next call still detects a broken GPU.
        return str(missing) if nvml.says_lost(missing) else ""
    return ""
