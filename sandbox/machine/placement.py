"""Placement of the ranks of a world on cores and GPUs."""

import os
import re
from collections.abc import Sequence
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


def cores_of(rank: int, ranks: int, gpus: Sequence[RankGpu]) -> list[int]:
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
