"""Stamps: times that a kernel records with px_stamp in a ring on its GPU. Without a profile px_stamp does nothing."""

import time
from typing import Any

import torch

OPTION = "-DPX_STAMPS"
ROOM = 1 << 14
"""Most stamps of a call."""
_SYMBOL, CALL, _HEAD = "px_stamp_ring", "px_stamp(", 2
_TO_DEVICE = 1
_ROUNDS = 20
CLOCK = 'extern "C" __global__ void px_gpu_clock(u64* at) { *at = px_now_ns(); }'
"""The kernel that `clock` launches."""


_rings: list[torch.Tensor] = []
"""The rings of this process; empty outside a profile."""


def begin(device: torch.device) -> None:
    """From now on, kernels are compiled with their stamps. Call it once per process, then `take`."""
    _rings.append(torch.zeros(_HEAD + 2 * ROOM, dtype=torch.int64, device=device))


def take() -> None:
    """Starts to record stamps."""
    for ring in _rings:
        ring[1] = ROOM


def wanted() -> bool:
    """Whether kernels are compiled with their stamps."""
    return bool(_rings)


def options(source: str) -> tuple[str, ...]:
    """The options for NVRTC that a source with stamps needs in a profile; else none."""
    return (OPTION,) if _rings and CALL in source else ()


def connect(module: int, source: str, driver: Any) -> None:
    """Sets the ring of a loaded module (CUmodule)."""
    if options(source):
        from cupy.cuda import runtime

        address = torch.tensor([_rings[0].data_ptr()], dtype=torch.int64)
        runtime.memcpy(driver.moduleGetGlobal(module, _SYMBOL), address.data_ptr(), 8, _TO_DEVICE)


def taken() -> list[tuple[int, int, int]]:
    """Returns and clears the recorded stamps, in no order: (ns on the GPU's clock, block, number). Waits for the GPU."""
    if not _rings:
        return []
    ring = _rings[0]
    count = min(int(ring[0]), ROOM)
    found = ring[_HEAD : _HEAD + 2 * count].view(-1, 2).tolist() if count else []
    ring[0] = 0
    return [(ns, word >> 32, word & 0xFFFFFFFF) for ns, word in found]


def clock(launch: Any, device: torch.device) -> tuple[int, int]:
    """(offset from a stamp's time to time.time_ns, its error), in nanoseconds.

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
