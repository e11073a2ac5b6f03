"""Calibrates a GPU's link, barriers and launches through the kit, path by path, and offers its ways of transfers.

All ranks measure at once, except where noted. Bandwidths are bytes per second from a peer's memory, in one direction.

The ways to move a block between two GPUs: copy engine, stores and loads of the SMs, TMA, NCCL, NCCL device, NVSHMEM. The
last two are also stores of the SMs, to an NCCL window and to addresses from nvshmem_ptr.
"""

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sandbox.rank.devices.device import Device
from sandbox.rank.devices.transfer_ways import Pair, Way, Ways, send, store

_cuda: Any = torch.cuda  # events and _sleep carry no types
SIZE = 256 << 20
"""Bytes of a copy, and of the largest block of a transfer."""
BLOCKS, THREADS = 132, 512
BARRIERS = 200
LAUNCHES = 200


def measure(device: Device) -> dict[str, float]:
    """Peaks of one rank (collective).

    link.copy_engine, link.sm, link.tma: from the next rank, all ranks at once. link.pair: the slowest pair of ranks, each
    pair alone, by copy engine. barrier_us: one device barrier of all ranks inside a kernel. symm_barrier_us: symm.barrier as
    called. launch.kit_us, launch.cupy_us: an empty kernel as called. compile_ms: NVRTC on a small kernel.

    Raises:
        CompileError: CuPy or its NVRTC is missing.
    """
    from sandbox.kit import cuda

    # A new name, equal on every rank, so that no cache has the text.
    name = torch.tensor([time.time_ns()], device=device.torch_device)
    dist.broadcast(name, 0)
    text = Path(__file__).with_name("calibration.cu").read_text()
    source = text.replace("u32 word", f"u32 word{int(name)}")
    started = time.perf_counter()
    module: Any = cuda.compile(source)
    peaks = {"compile_ms": (time.perf_counter() - started) * 1e3}
    peaks |= _launches(device, module)
    if dist.get_world_size() > 1:
        peaks |= _links(device, module)
    return peaks


def _launches(device: Device, module: Any) -> dict[str, float]:
    import cupy

    ours = module.nothing[1, 32]
    theirs = cupy.RawKernel('extern "C" __global__ void nothing(unsigned int word) {}', "nothing")
    word = cupy.uint32(1)
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)

    def through_cupy() -> None:
        with stream:
            for _ in range(LAUNCHES):
                theirs((1,), (32,), (word,))

    def through_kit() -> None:
        for _ in range(LAUNCHES):
            ours(1)

    # The queue has room for all launches, so that only the host is timed.
    return {
        f"launch.{name}_us": device.fastest(work, finish=False) / LAUNCHES * 1e6
        for name, work in (("kit", through_kit), ("cupy", through_cupy))
    }


def _links(device: Device, module: Any) -> dict[str, float]:
    from sandbox.kit import symm

    rank, world = dist.get_rank(), dist.get_world_size()
    mine = symm.empty((SIZE,), torch.uint8, tag="calibration")
    mine.fill_(rank + 1)
    peers = symm.peers(mine)
    next_rank = (rank + 1) % world
    here = torch.empty_like(mine)
    sm, tma = module.pull[BLOCKS, THREADS], module.pull_tma[BLOCKS, 32, 65536]
    ways: dict[str, Callable[[], Any]] = {
        "copy_engine": lambda: here.copy_(peers[next_rank]),
        "sm": lambda: sm(here, peers[next_rank], SIZE),
        "tma": lambda: tma(here, peers[next_rank], SIZE),
    }
    peaks = {}
    for name, work in ways.items():
        here.zero_()
        peaks[f"link.{name}"] = SIZE / device.fastest(work)
        if not bool((here == next_rank + 1).all()):
            raise RuntimeError(f"the copy from rank {next_rank} by {name} returned wrong data")
    peaks["link.pair"] = min(
        _alone(source, target, here, peers, device)
        for source in range(world)
        for target in range(world)
        if source != target
    )
    kernel = module.barriers[1, 32]

    def barriers() -> None:
        first = symm.next_epoch()
        for _ in range(BARRIERS - 1):
            symm.next_epoch()
        kernel(symm.px, first, BARRIERS)

    def symm_barriers() -> None:
        for _ in range(BARRIERS):
            symm.barrier()

    peaks["barrier_us"] = device.fastest(barriers) / BARRIERS * 1e6
    peaks["symm_barrier_us"] = device.fastest(symm_barriers) / BARRIERS * 1e6
    return peaks


def _alone(source: int, target: int, here: torch.Tensor, peers: list[torch.Tensor], device: Device) -> float:
    """Bytes per second while one rank reads from another and all others are idle; the same figure on every rank."""
    reads = dist.get_rank() == target
    seconds = device.fastest(partial(here.copy_, peers[source]) if reads else lambda: None)
    found = here.new_tensor([seconds if reads else 0.0], dtype=torch.float64)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return SIZE / float(found)


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

        window = nccl.window(SIZE, torch.uint8, tag="transfers")
        return stores_to(window.peers, window.tensor)

    def nvshmem() -> Way:
        shmem: Any = import_module("sandbox.kit.shmem")
        here = shmem.empty((SIZE,), torch.uint8, tag="transfers")
        return stores_to(shmem.peers(here), here)

    own = {
        "copy engine": Way(store),
        "SM stores": Way(store_by_sms),
        "SM loads": Way(load_by_sms, pulls=True),
        "TMA": Way(tma),
        "NCCL": Way(send),
    }
    return Ways(SIZE, own, _seconds, {"NCCL device": nccl_window, "NVSHMEM": nvshmem})


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
