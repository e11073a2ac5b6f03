"""Placement of the ranks of a world: cores, and GPUs with their device files."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sandbox.machine import nvml

CORES = 4
"""That a rank gets at the most."""


@dataclass(frozen=True)
class RankGpu:
    """One rank's GPU. minor: N of /dev/nvidiaN; uuid: as CUDA_VISIBLE_DEVICES takes it, empty where NVML cannot be asked.

    cores: near the GPU, and no other GPU's, so that worlds on different GPUs never meet on a core; empty where that fails.
    """

    minor: int
    uuid: str = ""
    cores: tuple[int, ...] = ()


def rank_gpus(ranks: int) -> tuple[RankGpu, ...]:
    """The GPUs of a world: the first ones that CUDA_VISIBLE_DEVICES leaves, one a rank. Fewer where there are fewer."""
    return _rank_gpus(ranks, os.environ.get("CUDA_VISIBLE_DEVICES"))


@lru_cache(maxsize=16)
def _rank_gpus(ranks: int, allowed: str | None) -> tuple[RankGpu, ...]:
    try:
        all_gpus = nvml.gpus()
        near = _near(all_gpus)
        found = [RankGpu(gpu.minor, gpu.uuid, near[gpu.minor]) for gpu in nvml.visible(all_gpus, allowed)]
    except nvml.NvmlMissing:
        # The driver's order is then taken for the order of the device files, which it is on most machines.
        numbers = range(ranks) if allowed is None else map(int, re.findall(r"\d+", allowed))
        found = [RankGpu(number) for number in numbers]
    return tuple(found[:ranks])


def gpu_device_files(gpus: Sequence[RankGpu]) -> tuple[str, ...]:
    """What a world needs of /dev to use these GPUs, and nothing of the others."""
    if not gpus:
        return ()
    shared = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
    return (*(f"/dev/nvidia{gpu.minor}" for gpu in gpus), *shared)


def cuda_environment(gpus: Sequence[RankGpu]) -> dict[str, str]:
    """Variables with which CUDA sees these GPUs alone, as 0, 1, 2..., and loads a kernel's code when it is first called.

    Loading all code at the start would double the time that a world takes to be ready, and quintuple its memory. Behind a
    closed gate a first call would wait for its code; so every call has run in front of it before.
    """
    found = {"CUDA_MODULE_LOADING": "LAZY"}
    if gpus and all(gpu.uuid for gpu in gpus):
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
    return found


def cores_of(rank: int, ranks: int, gpus: Sequence[RankGpu] = ()) -> list[int]:
    """The cores that rank r of every world is pinned to, the same few for both worlds: its GPU's, or a share of all."""
    if gpus and all(gpu.cores for gpu in gpus):
        return list(gpus[rank].cores)
    cores = sorted(os.sched_getaffinity(0))
    if ranks > len(cores):
        return [cores[rank % len(cores)]]
    share = min(len(cores) // ranks, CORES)
    return cores[rank * share : (rank + 1) * share]


def _near(gpus: Sequence[nvml.Gpu]) -> dict[int, tuple[int, ...]]:
    """By minor number, each GPU's own cores on its side of the machine; none where there are fewer cores than GPUs."""
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
