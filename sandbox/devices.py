"""What differs between CPU ranks and GPU ranks: the process group's backend, arenas, and how to wait for the work."""

import contextlib
import gc
import mmap
import os
from typing import Any, Protocol

import torch
import torch.distributed as dist

from problems import gloo
from sandbox import memory, slots


class Device(Protocol):
    """One rank's device."""

    torch_device: torch.device
    sealed: bool
    """Whether arenas are memory that others map with the rights they are given. Otherwise they are host memory, which a
    contender copies in and out by itself: the witnessed tier."""

    def can_seal(self) -> bool:
        """Whether this device's driver can do that."""

    def receive(self, size: int) -> None:
        """Where arenas are not sealed: copies the first bytes of the inputs to where the kernel reads them."""

    def deliver(self, size: int) -> None:
        """Where arenas are not sealed: copies the first bytes of the outputs to where the trusted side reads them."""

    def join(self, rank: int, world: int, folder: str) -> None:
        """Brings up the device and the process group (collective)."""

    def warm_kit(self) -> None:
        """What a kernel that uses the kit would else wait for: done while a spare world gets ready."""

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A descriptor to hand out and this rank's writable view, flat uint8; nobody else can write."""

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A descriptor to hand out and this rank's view, flat uint8; both sides may write."""

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """A read-only view of an input arena."""

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """A writable view of an output arena."""

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """Copies byte ranges from one input arena to another, the last thing before a batch.

        to: None where everything is in place already: then it only leaves the caches as the copy would.
        watch: look out for others' work on this device; returns the longest moment in microseconds that it took.
        """

    def free_cache(self) -> None:
        """Gives memory back that the framework only keeps for itself."""

    def release(self, arena: torch.Tensor) -> None:
        """Gives an arena of this rank's back; its tensor must not be used any more."""

    def synchronize(self) -> None:
        """Waits for everything that was launched."""


class CpuDevice:
    """A CPU rank: gloo, memory files."""

    torch_device = torch.device("cpu")
    sealed = True

    def can_seal(self) -> bool:
        """Memory files always can."""
        return True

    def receive(self, size: int) -> None:
        """The kernel reads the arena itself."""

    def deliver(self, size: int) -> None:
        """The kernel's outputs lie in the arena itself."""

    def join(self, rank: int, world: int, folder: str) -> None:
        """gloo over a file store, with its gaps filled in."""
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        gloo.install()

    def warm_kit(self) -> None:
        """Nothing that takes long."""

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A sealed memory file."""
        fd, mapping = memory.input_arena(size)
        return fd, slots.bytes_of(mapping)

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """A memory file that cannot be resized."""
        fd, mapping = memory.output_arena(size)
        return fd, slots.bytes_of(mapping)

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """A write to it is a segmentation fault."""
        return slots.bytes_of(memory.map_input(fd))

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """Shared and writable."""
        return slots.bytes_of(memory.map_output(fd))

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """Nothing to look out for: whoever could work on the inputs is stopped."""
        to = torch.empty_like(source) if to is None else to
        for low, high in ranges:
            to[low:high].copy_(source[low:high])
        return 0.0

    def free_cache(self) -> None:
        """The allocator of CPU ranks keeps nothing."""

    def release(self, arena: torch.Tensor) -> None:
        """The mapping goes with its last tensor."""

    def synchronize(self) -> None:
        """Nothing runs ahead on a CPU rank."""


class CudaDevice:
    """A GPU rank: NCCL, cuMem memory. One rank per GPU."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.torch_device = torch.device("cuda", index)
        self.courier: Any = None
        self.sealed = True
        self.host_in = self.host_out = torch.empty(0, dtype=torch.uint8)
        self.mapped_in = self.mapped_out = torch.empty(0, dtype=torch.uint8)

    def can_seal(self) -> bool:
        """cuMem memory that travels as a descriptor; some virtual GPUs and Windows' subsystem do not have it."""
        from sandbox import gpu_memory

        try:
            fd, arena = gpu_memory.allocate(gpu_memory.GRANULE)
        except gpu_memory.DriverError:
            return False
        gpu_memory.release(arena)
        os.close(fd)
        return True

    def receive(self, size: int) -> None:
        """From host memory; nothing where the arena is mapped."""
        if not self.sealed:
            self.mapped_in[:size].copy_(self.host_in[:size])
            torch.cuda.synchronize(self.index)

    def deliver(self, size: int) -> None:
        """To host memory; nothing where the arena is mapped."""
        if not self.sealed:
            self.host_out[:size].copy_(self.mapped_out[:size])

    def join(self, rank: int, world: int, folder: str) -> None:
        """Context, NCCL communicator and its first collective, so that a spare is really warm."""
        torch.cuda.set_device(self.index)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        dist.init_process_group(
            "nccl",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=world,
            device_id=self.torch_device,
        )
        dist.all_reduce(torch.zeros(1, device=self.torch_device))
        torch.cuda.synchronize()

    def warm_kit(self) -> None:
        """CuPy's import, and the code of the kit's own signals, compiled once per world."""
        from sandbox.kit import device_heap, host_signals
        from sandbox.kit.errors import CompileError

        host_signals.host_signals()
        with contextlib.suppress(CompileError):  # without CuPy or NVRTC: a kernel that needs them is told so
            device_heap.DeviceSignals()

    def input_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """cuMem memory; others map it read-only. Unsealed: a memory file."""
        if not self.sealed:
            fd, mapping = memory.input_arena(size)
            return fd, slots.bytes_of(mapping)
        from sandbox import gpu_memory

        return gpu_memory.allocate(size)

    def output_arena(self, size: int) -> tuple[int, torch.Tensor]:
        """cuMem memory. Unsealed: a memory file."""
        if not self.sealed:
            fd, mapping = memory.output_arena(size)
            return fd, slots.bytes_of(mapping)
        return self.input_arena(size)

    def map_input(self, fd: int, size: int) -> torch.Tensor:
        """A write to it is an illegal address. Unsealed: memory of this rank's own, filled by `receive`."""
        if not self.sealed:
            self.host_in = slots.bytes_of(memory.map_input(fd))
            self.mapped_in = torch.empty(size, dtype=torch.uint8, device=self.torch_device)
            return self.mapped_in
        from sandbox import gpu_memory

        return gpu_memory.attach(fd, size, gpu_memory.READ)

    def map_output(self, fd: int, size: int) -> torch.Tensor:
        """Shared and writable. Unsealed: memory of this rank's own, emptied by `deliver`."""
        if not self.sealed:
            self.host_out = slots.bytes_of(memory.map_output(fd))
            self.mapped_out = torch.empty(size, dtype=torch.uint8, device=self.torch_device)
            return self.mapped_out
        from sandbox import gpu_memory

        return gpu_memory.attach(fd, size, gpu_memory.READ_WRITE)

    def complete(
        self, to: torch.Tensor | None, source: torch.Tensor, ranges: list[tuple[int, int]], watch: bool
    ) -> float:
        """By the courier, in one go: what lies between the ranges is the same on both sides.

        Waits for nothing of this rank's own context, which may have a batch behind the closed gate.
        """
        from sandbox.gpu_courier import Courier

        self.courier = self.courier or Courier(self.index)
        if to is not None and not to.is_cuda:
            for low, high in ranges:
                to[low:high].copy_(source[low:high])
        elif ranges:
            low, high = ranges[0][0], ranges[-1][1]
            at = source.data_ptr() if to is None else to.data_ptr()
            self.courier.carry(at + low, source.data_ptr() + low, high - low)
        return float(self.courier.watch()) if watch else 0.0

    def free_cache(self) -> None:
        """torch's cached blocks go back to the driver, so that the other world can have them."""
        gc.collect()
        torch.cuda.synchronize(self.index)
        torch.cuda.empty_cache()

    def release(self, arena: torch.Tensor) -> None:
        """Unmaps it."""
        from sandbox import gpu_memory

        if self.sealed and arena.is_cuda and arena.numel():
            gpu_memory.release(arena)

    def synchronize(self) -> None:
        """All streams of this rank."""
        torch.cuda.synchronize(self.index)


def device_of(plan: dict[str, Any], rank: int) -> Device:
    """The device of a rank, by the launcher's plan."""
    if plan["device"] == "cuda":
        return CudaDevice(rank)  # a world sees its own GPUs alone
    return CpuDevice()


def gate_page(fd: int) -> mmap.mmap:
    """The page through which the referee releases a batch and sees it complete."""
    page = mmap.mmap(fd, 0)
    os.close(fd)
    return page
