"""CPU ranks: gloo, memory files."""

import mmap
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from problems import gloo
from sandbox.memory import host as memory
from sandbox.memory import slots
from sandbox.rank.devices.device import RankGate
from sandbox.rank.devices.fastest import fastest
from sandbox.rank.devices.transfer_ways import Pair, Way, Ways, send, store

LINK_BYTES = 16 << 20
LARGEST_TRANSFER = 32 << 20


class CpuDevice:
    """A Device for CPU ranks."""

    torch_device = torch.device("cpu")
    matmul_size = 384
    holds_results = False  # launching a copy is cheap
    copy_bytes = 32 << 20
    sealed = True

    def can_seal(self) -> bool:
        """True: memory files can always be sealed."""
        return True

    def receive(self, size: int) -> None:
        """Does nothing, because the kernel reads the arena itself."""

    def deliver(self, size: int) -> None:
        """Does nothing, because the kernel writes to the arena itself."""

    def join(self, rank: int, world: int, folder: str, *, lazy: bool = False) -> None:
        """Joins a gloo process group over a file store, and adds operations that gloo lacks."""
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        gloo.install()

    def warm_kit(self) -> None:
        """Does nothing, because the kit loads quickly here."""

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A sealed memory file."""
        fd, mapping = memory.input_arena(size)
        return fd, slots.bytes_of(mapping)

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A memory file that cannot be resized."""
        fd, mapping = memory.output_arena(size)
        return fd, slots.bytes_of(mapping)

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """Maps the arena read-only. A write to it is a segmentation fault."""
        return slots.bytes_of(memory.map_input(fd))

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """Maps the arena shared and writable."""
        return slots.bytes_of(memory.map_output(fd))

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """Copies the ranges. There is no foreign work on CPU ranks."""
        to = torch.empty_like(source) if to is None else to
        for low, high in ranges:
            to[low:high].copy_(source[low:high])
        return 0.0

    def keep_blocks_whole(self) -> None:
        """Does nothing, because the allocator of CPU ranks caches nothing."""

    def memory_bytes(self) -> int:
        """0, because the memory limits of worlds apply."""
        return 0

    def peak_bytes(self) -> int:
        """0, as `memory_bytes`."""
        return 0

    def free_cache(self) -> None:
        """Does nothing, because the allocator of CPU ranks caches nothing."""

    def free_blocks(self, beyond: int) -> None:
        """Does nothing, as `free_cache`."""

    def release(self, arena: torch.Tensor) -> None:
        """Does nothing, because the mapping ends with its last tensor."""

    def release_all(self) -> None:
        """Does nothing, as `release`."""

    def synchronize(self) -> None:
        """Does nothing, because CPU ranks do not run asynchronously."""

    def gate(self, page: mmap.mmap, rank: int) -> RankGate:
        """Raises RuntimeError, because CPU ranks queue nothing."""
        raise RuntimeError("CPU ranks have no starting gate")

    def link_peaks(self) -> dict[str, float]:
        """Bytes per second from the next rank's memory through the symmetric heap; 0 with one rank."""
        if dist.get_world_size() == 1:
            return {"link": 0.0}
        from sandbox.kit import symm

        mine = symm.empty((LINK_BYTES,), torch.uint8, tag="calibration")
        mine.fill_(1)
        peer = symm.peers(mine)[(dist.get_rank() + 1) % dist.get_world_size()]
        return {"link": LINK_BYTES / fastest(partial(torch.empty_like(mine).copy_, peer), self)}

    def transfer_ways(self) -> Ways:
        """The ways of CPU ranks: copies to and from shared memory, and gloo."""
        ways = {"memory stores": Way(store), "memory loads": Way(_load, pulls=True), "gloo": Way(send)}
        return Ways(LARGEST_TRANSFER, ways, _seconds)


def _load(pair: Pair, nbytes: int, turns: int) -> None:
    to, source = pair.own[:nbytes], pair.there(nbytes)
    pair.by_host(turns, lambda: to.copy_(source))


def _seconds(work: Callable[[], object], pair: Pair) -> float:
    pair.team.host_barrier()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def device(rank: int) -> CpuDevice:
    """The device of a rank."""
    return CpuDevice()
