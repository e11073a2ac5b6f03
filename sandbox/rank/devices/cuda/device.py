"""Ranks on NVIDIA GPUs: NCCL, memory of the CUDA driver."""

import contextlib
import ctypes
import gc
import mmap
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from sandbox.memory import gpu
from sandbox.memory.gpu import DriverError, call, driver
from sandbox.protocol.frames import WORD
from sandbox.rank.devices.cuda.input_copier import InputCopier
from sandbox.rank.devices.device import Device
from sandbox.rank.devices.transfer_ways import Ways

_GEQ = 0
_PORTABLE_MAPPED = 3


class CudaGate:
    """Queues waits and marks on this rank's current stream."""

    def __init__(self, page: mmap.mmap, rank: int) -> None:
        """Registers the page with the driver, so that streams can wait for its words."""
        self.page = page
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        status = runtime.cudaHostRegister(self.address, len(page), _PORTABLE_MAPPED)
        if int(status) != 0:
            raise DriverError(f"cudaHostRegister: {status}")
        pointer = ctypes.c_ulonglong()
        call("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), ctypes.c_void_p(self.address), 0)
        self.release = pointer.value
        self.mine = pointer.value + WORD * (rank + 1)
        named = ("cuStreamWaitValue32", "cuStreamWriteValue32")
        self.wait_value, self.write_value = (
            f"{name}_v2" if hasattr(driver(), f"{name}_v2") else name for name in named
        )
        self.token = torch.zeros(1, device="cuda")

    def shut(self, epoch: int) -> None:
        """Delays later work until the referee opens the gate and all ranks have reached it (collective)."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        call(self.wait_value, stream, ctypes.c_ulonglong(self.release), ctypes.c_uint(epoch), _GEQ)
        dist.all_reduce(self.token)

    def mark(self, epoch: int) -> None:
        """Reports to the referee when all work on this stream is done."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        call(self.write_value, stream, ctypes.c_ulonglong(self.mine), ctypes.c_uint(epoch), 0)


_settle_allocator: Any = (
    getattr(torch._C, "_accelerator_setAllocatorSettings", None) or torch.cuda.memory._set_allocator_settings
)


class CudaDevice(Device):
    """One rank per GPU."""

    matmul_size = 8192
    holds_results = True
    copy_bytes = 1 << 30

    def __init__(self, index: int) -> None:
        self.index = index
        self.torch_device = torch.device("cuda", index)
        self._copier: InputCopier | None = None
        self.sealed = True
        self._asked_at = 0
        """Bytes of tensors at the last call of `peak_bytes`."""
        self._forget_unsealed()
        self._arenas: dict[int, torch.Tensor] = {}
        """The mapped sealed arenas, by address."""

    def can_seal(self) -> bool:
        """Whether cuMem memory can be passed as a descriptor. It cannot on some virtual GPUs and in WSL."""
        try:
            fd, arena = gpu.allocate(gpu.GRANULE)
        except gpu.DriverError:
            return False
        gpu.release(arena)
        os.close(fd)
        return True

    def receive(self, size: int) -> None:
        """Copies from host memory; nothing if the arena is sealed."""
        if not self.sealed:
            self.mapped_in[:size].copy_(self.host_in[:size])
            torch.cuda.synchronize(self.index)

    def deliver(self, size: int) -> None:
        """Copies to host memory; nothing if the arena is sealed."""
        if not self.sealed:
            self.host_out[:size].copy_(self.mapped_out[:size])

    def join(self, rank: int, world: int, folder: str, *, lazy: bool = False) -> None:
        """Makes the context and the NCCL communicator, and runs a collective to warm both up.

        lazy: NCCL starts at its first use.
        """
        torch.cuda.set_device(self.index)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        dist.init_process_group(
            "nccl",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=world,
            device_id=None if lazy else self.torch_device,
        )
        if lazy:
            return
        dist.all_reduce(torch.zeros(1, device=self.torch_device))
        torch.cuda.synchronize()

    def warm_up(self) -> None:
        """Imports CuPy and compiles what the kit needs for signals and recorded calls, once per world."""
        from sandbox.kit import recorded
        from sandbox.kit.errors import CompileError
        from sandbox.kit.symmetric_memory import device_heap, host_signals

        host_signals.host_signals()
        with contextlib.suppress(CompileError):  # a kernel that needs CuPy or NVRTC gets the error
            device_heap.DeviceSignals()
            recorded.issuer()

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """cuMem memory, read-only for other processes; unsealed: a memory file."""
        if not self.sealed:
            return super().input_arena(size)
        fd, arena = gpu.allocate(size)
        return fd, self._noted(arena)

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """cuMem memory; unsealed: a memory file."""
        return self.input_arena(size) if self.sealed else super().output_arena(size)

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """A view that is read-only; unsealed: memory of this rank that `receive` fills."""
        if not self.sealed:
            self.host_in = super().map_input(fd, size)
            self.mapped_in = torch.empty(size, dtype=torch.uint8, device=self.torch_device)
            return self.mapped_in
        return self._noted(gpu.attach(fd, size, gpu.READ))

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """A writable view; unsealed: memory of this rank that `deliver` copies."""
        if not self.sealed:
            self.host_out = super().map_output(fd, size)
            self.mapped_out = torch.empty(size, dtype=torch.uint8, device=self.torch_device)
            return self.mapped_out
        return self._noted(gpu.attach(fd, size, gpu.READ_WRITE))

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """Copies all ranges as one by the second context. The bytes between them are equal in both arenas.

        It does not wait for this rank's own context, which may have a batch behind the closed gate.
        """
        self._copier = self._copier or InputCopier(self.index)
        if to is not None and not to.is_cuda:
            for low, high in ranges:
                to[low:high].copy_(source[low:high])
        elif ranges:
            low, high = ranges[0][0], ranges[-1][1]
            at = source.data_ptr() if to is None else to.data_ptr()
            self._copier.copy(at + low, source.data_ptr() + low, high - low)
        return self._copier.watch() if watch else 0.0

    def reader(self, rows: torch.Tensor) -> Callable[[], torch.Tensor]:
        """The copy is made by a copy engine, which does not wait for other contexts' time slices."""
        self._copier = self._copier or InputCopier(self.index)
        return self._copier.reader(rows)

    def keep_blocks_whole(self) -> None:
        """Sets an option of the allocator."""
        _settle_allocator("max_split_size_mb:1024")

    def memory_bytes(self) -> int:
        """Total memory as the driver reports it."""
        total: int = torch.cuda.mem_get_info(self.index)[1]
        return total

    def peak_bytes(self) -> int:
        """Peak memory as torch's allocator reports it."""
        peak = torch.cuda.max_memory_allocated(self.index) - self._asked_at
        torch.cuda.reset_peak_memory_stats(self.index)
        self._asked_at = torch.cuda.memory_allocated(self.index)
        return max(peak, 0)

    def free_cache(self) -> None:
        """Returns torch's cached blocks and workspaces to the driver, for other worlds."""
        gc.collect()
        torch.cuda.synchronize(self.index)
        torch._C._cuda_clearCublasWorkspaces()
        torch.backends.cuda.cufft_plan_cache[self.index].clear()
        torch.cuda.empty_cache()

    def free_blocks(self, beyond: int) -> None:
        """Returns torch's cached blocks to the driver, for other worlds."""
        if torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index) > beyond:
            torch.cuda.empty_cache()

    def release(self, arena: torch.Tensor) -> None:
        """Unmaps an arena, if it is mapped."""
        if arena.numel() and (mapped := self._arenas.pop(arena.data_ptr(), None)) is not None:
            gpu.release(mapped)

    def release_all(self) -> None:
        """Unmaps all sealed arenas. Unsealed ones end with their last tensor."""
        for arena in list(self._arenas.values()):
            self.release(arena)
        self._forget_unsealed()

    def _noted(self, arena: torch.Tensor) -> torch.Tensor:
        self._arenas[arena.data_ptr()] = arena
        return arena

    def _forget_unsealed(self) -> None:
        self.host_in = self.host_out = torch.empty(0, dtype=torch.uint8)
        self.mapped_in = self.mapped_out = torch.empty(0, dtype=torch.uint8)

    def synchronize(self) -> None:
        """Waits for all streams of this rank."""
        torch.cuda.synchronize(self.index)

    def gate(self, page: mmap.mmap, rank: int) -> CudaGate:
        """The gate of this rank's current stream."""
        return CudaGate(page, rank)

    def link_peaks(self) -> dict[str, float]:
        """The figures of sandbox.rank.devices.cuda.calibration, and the best path as "link"."""
        from sandbox.rank.devices.cuda import calibration

        peaks = calibration.measure(self)
        ways = ("link.copy_engine", "link.sm", "link.tma")
        return peaks | {"link": max((peaks[way] for way in ways if way in peaks), default=0.0)}

    def transfer_ways(self) -> Ways:
        """The ways of sandbox.rank.devices.cuda.calibration."""
        from sandbox.rank.devices.cuda import calibration

        return calibration.ways()


def device(rank: int) -> CudaDevice:
    """The device of a rank. A world sees only its own GPUs, in the order of its ranks."""
    return CudaDevice(rank)
