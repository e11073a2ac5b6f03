"""The ways to move a block between two GPUs: copy engine, stores and loads of the SMs, TMA, NCCL, NCCL device, NVSHMEM.

The last two are also stores of the SMs, to an NCCL window and to addresses from nvshmem_ptr.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from sandbox.rank.devices.transfer_ways import Pair, Way, Ways, send, store

_cuda: Any = torch.cuda  # events and _sleep carry no types
LARGEST = 256 << 20
BLOCKS, THREADS = 132, 512
LEAST_TILE, MOST_TILE = 2 << 10, 32 << 10
"""Bytes that TMA moves at a time."""
GATE_CYCLES = 6_000_000
"""How long the first rank's stream waits, about 3 ms, so that the hosts have queued a whole series before its first
move."""


def ways() -> Ways:
    """All ways of a GPU.

    Raises:
        CompileError: CuPy or its NVRTC is missing.
    """
    from sandbox.kit import cuda

    module: Any = cuda.compile(Path(__file__).with_name("transfers.cu").read_text())
    done = torch.zeros(1, dtype=torch.int32, device="cuda")

    def move(pair: Pair, nbytes: int, turns: int, to: torch.Tensor, source: torch.Tensor) -> None:
        module.move[grid_for(nbytes)](*_turns(pair, turns, done), to, source, nbytes)

    def store_by_sms(pair: Pair, nbytes: int, turns: int) -> None:
        move(pair, nbytes, turns, pair.there(nbytes), pair.own)

    def load_by_sms(pair: Pair, nbytes: int, turns: int) -> None:
        move(pair, nbytes, turns, pair.own, pair.there(nbytes))

    def tma(pair: Pair, nbytes: int, turns: int) -> None:
        tile = tile_for(nbytes)
        blocks = min(BLOCKS, nbytes // tile)
        module.move_tma[blocks, 32, 2 * tile](*_turns(pair, turns, done), pair.there(nbytes), pair.own, nbytes, tile)

    def stores_to(peers: list[torch.Tensor], here: torch.Tensor) -> Way:
        return Way(
            lambda pair, nbytes, turns: move(pair, nbytes, turns, peers[pair.peer][:nbytes], pair.own), into=here
        )

    def nccl_window() -> Way:
        from sandbox.kit import nccl

        window = nccl.window(LARGEST, torch.uint8, tag="transfers")
        return stores_to(window.peers, window.tensor)

    def nvshmem() -> Way:
        shmem: Any = import_module("sandbox.kit.shmem")
        here = shmem.empty((LARGEST,), torch.uint8, tag="transfers")
        return stores_to(shmem.peers(here), here)

    own = {
        "copy engine": Way(store),
        "SM stores": Way(store_by_sms),
        "SM loads": Way(load_by_sms, pulls=True),
        "TMA": Way(tma),
        "NCCL": Way(send),
    }
    return Ways(LARGEST, own, _seconds, {"NCCL device": nccl_window, "NVSHMEM": nvshmem})


def _turns(pair: Pair, turns: int, done: torch.Tensor) -> tuple[Any, ...]:
    return pair.team.px, pair.peer_member, 0 if pair.first else 1, turns, pair.epochs(turns), done


def _seconds(work: Callable[[], object], pair: Pair) -> float:
    started, ended = (_cuda.Event(enable_timing=True) for _ in range(2))
    if pair.first:
        _cuda._sleep(GATE_CYCLES)
    started.record()
    work()
    ended.record()
    torch.cuda.synchronize()
    return float(started.elapsed_time(ended)) / 1e3


def grid_for(nbytes: int) -> tuple[int, int]:
    """Thread blocks, and threads per block, so that each thread moves at least 16 bytes."""
    threads = min(THREADS, max(32, nbytes // 16))
    return min(BLOCKS, max(1, nbytes // 16 // threads)), threads


def tile_for(nbytes: int) -> int:
    """Bytes that a thread block moves at a time: a power of two that gives all thread blocks work, if possible."""
    tile = LEAST_TILE
    while tile < MOST_TILE and tile * BLOCKS < nbytes:
        tile *= 2
    return tile
