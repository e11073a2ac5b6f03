"""Where the ranks of a world run: cores, and GPUs with their device files."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sandbox import nvml


@dataclass(frozen=True)
class Seat:
    """One rank's GPU. minor: N of /dev/nvidiaN; uuid: as CUDA_VISIBLE_DEVICES takes it, empty where NVML cannot be asked."""

    minor: int
    uuid: str = ""


def seats(ranks: int) -> tuple[Seat, ...]:
    """The GPUs of a world: the first ones that CUDA_VISIBLE_DEVICES leaves, one a rank. Fewer where there are fewer."""
    return _seats(ranks, os.environ.get("CUDA_VISIBLE_DEVICES"))


@lru_cache(maxsize=16)
def _seats(ranks: int, allowed: str | None) -> tuple[Seat, ...]:
    try:
        found = [Seat(gpu.minor, gpu.uuid) for gpu in nvml.visible(nvml.gpus(), allowed)]
    except nvml.NvmlMissing:
        # The driver's order is then taken for the order of the device files, which it is on most machines.
        numbers = range(ranks) if allowed is None else map(int, re.findall(r"\d+", allowed))
        found = [Seat(number) for number in numbers]
    return tuple(found[:ranks])


def gpu_device_files(seats: Sequence[Seat]) -> tuple[str, ...]:
    """What a world needs of /dev to use these GPUs, and nothing of the others."""
    if not seats:
        return ()
    shared = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
    return (*(f"/dev/nvidia{seat.minor}" for seat in seats), *shared)


def cuda_environment(seats: Sequence[Seat]) -> dict[str, str]:
    """Variables with which CUDA sees these GPUs alone, as 0, 1, 2..., and loads a kernel's code when it is first called.

    Loading all code at the start would double the time that a world takes to be ready, and quintuple its memory. Behind a
    closed gate a first call would wait for its code; so every call has run in front of it before.
    """
    found = {"CUDA_MODULE_LOADING": "LAZY"}
    if all(seat.uuid for seat in seats):
        found["CUDA_VISIBLE_DEVICES"] = ",".join(seat.uuid for seat in seats)
    return found


def cores_of(rank: int, ranks: int) -> list[int]:
    """The cores that rank r of every world is pinned to: the same few for both worlds, at most four."""
    cores = sorted(os.sched_getaffinity(0))
    if ranks > len(cores):
        return [cores[rank % len(cores)]]
    share = min(len(cores) // ranks, 4)
    return cores[rank * share : (rank + 1) * share]
