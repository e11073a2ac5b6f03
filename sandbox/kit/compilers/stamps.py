"""Stamps: the moments that a kernel notes with px_stamp under a profile, in a ring of its GPU. Else px_stamp is nothing."""

import time
from typing import Any, NamedTuple

import torch

OPTION = "-DPX_STAMPS"
ROOM = 1 << 14
"""Stamps of a call that are kept."""
_SYMBOL, CALL, _HEAD = "px_stamp_ring", "px_stamp(", 2
_TO_DEVICE = 1
_ROUNDS = 20
CLOCK = 'extern "C" __global__ void px_gpu_clock(u64* at) { *at = px_now_ns(); }'
"""The kernel that `clock` launches."""


class Stamp(NamedTuple):
    """A block was at a place of its kernel. ns: by the GPU's own clock."""

    ns: int
    block: int
    number: int


_rings: list[torch.Tensor] = []
"""This process's: none outside a profile."""


def begin(device: torch.device) -> None:
    """From now on kernels are compiled with their stamps, of which none are taken yet. Once in a process."""
    _rings.append(torch.zeros(_HEAD + 2 * ROOM, dtype=torch.int64, device=device))


def take() -> None:
    """From now on stamps are taken; until then each costs a load."""
    for ring in _rings:
        ring[1] = ROOM


def wanted() -> bool:
    """Whether kernels are compiled with their stamps."""
    return bool(_rings)


def options(source: str) -> tuple[str, ...]:
    """What NVRTC is told in addition."""
    return (OPTION,) if _rings and CALL in source else ()


def connect(module: int, source: str, driver: Any) -> None:
    """Tells a loaded module (CUmodule) where its stamps go."""
    if options(source):
        from cupy.cuda import runtime

        address = torch.tensor([_rings[0].data_ptr()], dtype=torch.int64)
        runtime.memcpy(driver.moduleGetGlobal(module, _SYMBOL), address.data_ptr(), 8, _TO_DEVICE)


def taken() -> list[Stamp]:
    """The stamps since the last time, in no order; then there are none. Waits for the GPU."""
    if not _rings:
        return []
    ring = _rings[0]
    count = min(int(ring[0]), ROOM)
    found = ring[_HEAD : _HEAD + 2 * count].view(-1, 2).tolist() if count else []
    ring[0] = 0
    return [Stamp(ns, word >> 32, word & 0xFFFFFFFF) for ns, word in found]


def clock(launch: Any, device: torch.device) -> tuple[int, int]:
    """What to add to a stamp's time to have the host's (time.time_ns), and by how many nanoseconds that may be wrong.

    launch: CLOCK's kernel, with its shape.
    """
    word = torch.zeros(1, dtype=torch.int64, device=device)
    tries = []
    for _ in range(_ROUNDS):
        torch.cuda.synchronize(device)
        before = time.time_ns()
        launch(word)
        torch.cuda.synchronize(device)
        after = time.time_ns()
        tries.append((after - before, (before + after) // 2 - int(word)))
    took, offset = min(tries)
    return offset, took // 2
