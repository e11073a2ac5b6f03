"""The ranks' side of a kind of device: everything that differs between kinds and needs torch.

`Device` is that of CPU ranks: gloo and memory files. A module beside this one overrides what differs on another kind, and has a
function `device(rank)`, too. On the referee's side the same kind has its name as `rank_module` (sandbox/machine/devices/).
"""

import mmap
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from problems import gloo
from sandbox.memory import host as memory
from sandbox.memory import slots
from sandbox.rank.devices.transfer_ways import Pair, Way, Ways, send, store

LINK_BYTES = 16 << 20
LARGEST_TRANSFER = 32 << 20
WARM_OBJECTS = 10_000
"""Objects that a new process makes, in 15 ms."""
REPETITIONS = 7
"""Repetitions of a calibrated work, of which the fastest counts, because a peak is a limit and not an average."""


class Device:
    """One rank's device."""

    torch_device = torch.device("cpu")
    matmul_size = 384
    """Rows of the square matrices that calibration multiplies."""
    copy_bytes = 32 << 20
    """Bytes that calibration copies."""
    holds_results = False
    """Whether launching a copy is so expensive that output copies are deferred."""
    sealed = True
    """Whether arenas are shared memory with restricted rights. Otherwise they are host memory, which the contender copies."""

    def can_seal(self) -> bool:
        """Whether this device supports sealed arenas."""
        return True

    def receive(self, size: int) -> None:
        """Copies the first bytes of unsealed inputs to where the kernel reads them; on CPU ranks it reads the arena itself."""

    def deliver(self, size: int) -> None:
        """Copies the first bytes of unsealed outputs to where the trusted side reads them; on CPU ranks they are there."""

    def join(self, rank: int, world: int, folder: str, *, lazy: bool = False) -> None:
        """Brings up the device and the process group (collective). lazy: connections are made when they are first used."""
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        gloo.install()  # operations that gloo lacks

    def warm_up(self) -> None:
        """Makes this process as quick as one that has run for long.

        A forked process copies each shared page at its first write. Torch's table of objects has hundreds, and calls write to any
        of them: at first each had a page fault, after a thousand one in five. Many objects at once reach all pages.
        """
        objects = [dist.AllreduceOptions() for _ in range(WARM_OBJECTS)]
        del objects

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """Makes an arena, read-only for other processes. Returns a descriptor and a writable view, flat uint8."""
        fd, mapping = memory.input_arena(size)
        return fd, slots.bytes_of(mapping)

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """Makes an arena, writable for other processes, too. Returns a descriptor and a writable view, flat uint8."""
        fd, mapping = memory.output_arena(size)
        return fd, slots.bytes_of(mapping)

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """A read-only view of an input arena. A write to it is a segmentation fault or an illegal address."""
        return slots.bytes_of(memory.map_input(fd))

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """A writable view of an output arena."""
        return slots.bytes_of(memory.map_output(fd))

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """Copies byte ranges from one input arena to another, right before a batch.

        to: None if everything is in place; the caches are then left as after a copy.
        watch: measure foreign work on this device; returns the longest one in microseconds. There is none on CPU ranks.
        """
        to = torch.empty_like(source) if to is None else to
        for low, high in ranges:
            to[low:high].copy_(source[low:high])
        return 0.0

    def reader(self, rows: torch.Tensor) -> Callable[[], torch.Tensor]:
        """A function that copies rows of memory to the host, whatever else the device computes. rows: uint8 [rows, bytes]."""
        return rows.clone

    def keep_blocks_whole(self) -> None:
        """Prevents the allocator from splitting cached blocks of 1 GiB, which the next inputs need whole."""

    def memory_bytes(self) -> int:
        """Total memory of the device; 0 if ranks share the machine's memory."""
        return 0

    def peak_bytes(self) -> int:
        """Peak bytes of tensors since the last call, beyond the bytes at that time; 0 if ranks share the machine's memory."""
        return 0

    def free_cache(self) -> None:
        """Frees memory that the framework and its libraries cache; on CPU ranks they cache none."""

    def free_blocks(self, beyond: int) -> None:
        """Frees the blocks that the framework's allocator caches, if they take more than `beyond` bytes."""

    def release(self, arena: torch.Tensor) -> None:
        """Frees an arena of this rank, whose tensor must not be used afterwards. On CPU ranks it ends with its last tensor."""

    def release_all(self) -> None:
        """Frees all arenas of this rank, as `release`."""

    def synchronize(self) -> None:
        """Waits for all launched work."""

    def gate(self, page: mmap.mmap, rank: int) -> Any:
        """This rank's side of the starting gate with this page, as `sandbox.rank.devices.cuda.device.CudaGate`."""
        raise RuntimeError("CPU ranks have no starting gate")

    # --- calibration: collective, with all ranks at once ------------------------------------------------------------

    def fastest(self, work: Callable[[], object], finish: bool = True) -> float:
        """Seconds of the fastest repetition after a warm-up. All ranks start together.

        finish: measure until the device is done; False: only the call.
        """
        work()
        self.synchronize()
        best = float("inf")
        for _ in range(REPETITIONS):
            dist.barrier()
            self.synchronize()
            started = time.perf_counter()
            work()
            if finish:
                self.synchronize()
            best = min(best, time.perf_counter() - started)
            self.synchronize()
        return best

    def peaks(self) -> dict[str, float]:
        """Peaks of one rank while all ranks measure.

        flops.<dtype>: floating-point operations per second of a square product. local: bytes per second read plus written by a
        copy. link: as `link_peaks`. launch_us: microseconds to call a small operation.
        """
        peaks: dict[str, float] = {}
        n = self.matmul_size
        for dtype in (torch.bfloat16, torch.float32):
            a, b = (torch.randn(n, n, device=self.torch_device).to(dtype) for _ in range(2))
            peaks[f"flops.{str(dtype).removeprefix('torch.')}"] = 2 * n**3 / self.fastest(partial(torch.matmul, a, b))
        source = torch.ones(self.copy_bytes, dtype=torch.uint8, device=self.torch_device)
        peaks["local"] = 2 * source.numel() / self.fastest(partial(torch.empty_like(source).copy_, source))
        peaks |= self.link_peaks()
        small = torch.zeros(1, device=self.torch_device)
        peaks["launch_us"] = self.fastest(lambda: [small.add_(1) for _ in range(100)]) / 100 * 1e6
        return peaks

    def link_peaks(self) -> dict[str, float]:
        """Bytes per second from the next rank's memory, by copies from the symmetric heap, as "link"; 0 with one rank."""
        if dist.get_world_size() == 1:
            return {"link": 0.0}
        from sandbox.kit import symm

        mine = symm.empty((LINK_BYTES,), torch.uint8, tag="calibration")
        mine.fill_(1)
        peer = symm.peers(mine)[(dist.get_rank() + 1) % dist.get_world_size()]
        return {"link": LINK_BYTES / self.fastest(partial(torch.empty_like(mine).copy_, peer))}

    def transfer_ways(self) -> Ways:
        """The ways to move a block between two ranks. Raises CompileError if they cannot be compiled here."""
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


def device(rank: int) -> Device:
    return Device()
