"""The symmetric heap and its signals on GPUs: cuMem memory that every rank maps, like the judge's arenas.

Multicast stays off: only peers' plain addresses are used. torch's symmetric memory is no alternative, because its first
allocation in a process takes two seconds.
"""

import os
from typing import Any

import torch
import torch.utils.dlpack

from sandbox.kit import cuda
from sandbox.kit.compilers import gcc
from sandbox.kit.errors import SymmetricMemoryError
from sandbox.kit.layout import PADS_BYTES, Px
from sandbox.kit.symmetric_memory.heap import Heap, exchange
from sandbox.kit.symmetric_memory.host_signals import Signals
from sandbox.memory import gpu as gpu_memory

_SOURCE = (gcc.INCLUDE / "px_device_signals.cuh").read_text()


def device_heap(rank: int, world: int, heap_bytes: int, store: Any, timeout_s: float) -> Heap:
    """Allocates a heap on every rank's current device and maps the others' (collective).

    store: a torch.distributed store that all ranks share. Raises SymmetricMemoryError if memory cannot be allocated or
    shared, BarrierTimeout with the missing ranks.
    """
    size = PADS_BYTES + heap_bytes
    try:
        fd, block = gpu_memory.allocate(size)
        block.zero_()  # pads must start at 0, and buffers do so on CPU ranks, too
        torch.cuda.synchronize()
        fds = exchange(rank, world, store, "symm/device", fd, timeout_s)
        addresses = [
            block.data_ptr() if peer == rank else gpu_memory.attach_address(fds[peer], size, gpu_memory.READ_WRITE)
            for peer in range(world)
        ]
    except gpu_memory.DriverError as error:
        raise SymmetricMemoryError(
            f"cannot share {heap_bytes >> 20} MiB of GPU memory between the ranks ({error}); the GPUs must reach each other "
            "(NVLink or PCIe peer access), and PKB_SYMM_BYTES sets the size"
        ) from None
    for descriptor in fds:
        os.close(descriptor)
    parts = [bytes_at(address + PADS_BYTES, heap_bytes) for address in addresses]
    return Heap(rank, parts, addresses, keep=block)


def bytes_at(address: int, size: int) -> torch.Tensor:
    """Mapped memory as a tensor of this rank's device, even if it is on another; torch alone would copy it then."""
    import cupy

    memory = cupy.cuda.UnownedMemory(address, size, None, torch.cuda.current_device())
    span = cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))
    return torch.utils.dlpack.from_dlpack(span)


class DeviceSignals(Signals):
    """Signals as kernels on torch's current stream: they return at once, order the stream, and trap after the limit.

    They cannot report a missing peer, which causes a CUDA error at the next synchronisation.
    """

    def __init__(self) -> None:
        module: Any = cuda.compile(_SOURCE)
        self._barrier = module.px_device_barrier[1, 32]
        self._signal = module.px_device_signal[1, 1]
        self._wait = module.px_device_wait[1, 1]

    def barrier(self, px: Px, slot: int, epoch: int, timeout_ms: int) -> int:
        self._barrier(px, slot, epoch, timeout_ms)
        return 0

    def signal(self, px: Px, peer: int, slot: int, value: int) -> None:
        self._signal(px, peer, slot, value)

    def wait(self, px: Px, peer: int, slot: int, value: int, timeout_ms: int) -> bool:
        self._wait(px, peer, slot, value, timeout_ms)
        return True
