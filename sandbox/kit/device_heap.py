"""The symmetric heap and its signals on GPUs, over torch's symmetric memory.

Multicast stays off: only peers' plain addresses are used.
"""

import os
from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import cuda
from sandbox.kit.errors import SymmetricMemoryError
from sandbox.kit.heap import Heap
from sandbox.kit.layout import PADS_BYTES, Px

_SOURCE = r"""
extern "C" __global__ void px_device_barrier(Px px, u32 slot, u32 epoch, u32 timeout_ms) {
    px_barrier(px, slot, epoch, timeout_ms);
}
extern "C" __global__ void px_device_signal(Px px, int peer, u32 slot, u32 value) {
    px_signal(px, peer, slot, value);
}
extern "C" __global__ void px_device_wait(Px px, int peer, u32 slot, u32 value, u32 timeout_ms) {
    px_until(px_word(px.sig[px.rank], slot, peer), value, timeout_ms);
}
"""


def device_heap(rank: int, world: int, heap_bytes: int) -> Heap:
    """Allocate and exchange the heap of every rank's current device. Collective; takes some milliseconds."""
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    import torch.distributed._symmetric_memory as symmetric_memory

    device = torch.device("cuda", torch.cuda.current_device())
    try:
        block = symmetric_memory.empty(PADS_BYTES + heap_bytes, dtype=torch.uint8, device=device)
        block.zero_()  # pads must start at 0, and so do buffers, as on CPU ranks
        handle = symmetric_memory.rendezvous(block, dist.distributed_c10d._get_default_group().group_name)
    except RuntimeError as error:
        raise SymmetricMemoryError(
            f"cannot share {heap_bytes >> 20} MiB of GPU memory between the ranks ({error}); the GPUs must reach each other "
            "(NVLink or PCIe peer access), and PKB_SYMM_BYTES sets the size"
        ) from None
    torch.cuda.synchronize(device)
    parts = [handle.get_buffer(r, (heap_bytes,), torch.uint8, PADS_BYTES) for r in range(world)]
    # Only the handle keeps the peers' memory mapped.
    return Heap(rank, parts, list(handle.buffer_ptrs), keep=(handle, block))


class DeviceSignals:
    """Signals as kernels on torch's current stream: they return at once, order the stream, and trap when time
    is up.

    So nobody is reported missing: a peer that does not come ends in a CUDA error at the next synchronisation.
    """

    def __init__(self) -> None:
        module: Any = cuda.compile(_SOURCE)
        self._barrier = module.px_device_barrier[1, 32]
        self._signal = module.px_device_signal[1, 1]
        self._wait = module.px_device_wait[1, 1]

    def barrier(self, px: Px, slot: int, epoch: int, timeout_ms: int) -> int:
        """See HostSignals."""
        self._barrier(px, slot, epoch, timeout_ms)
        return 0

    def signal(self, px: Px, peer: int, slot: int, value: int) -> None:
        """See HostSignals."""
        self._signal(px, peer, slot, value)

    def wait(self, px: Px, peer: int, slot: int, value: int, timeout_ms: int) -> bool:
        """See HostSignals."""
        self._wait(px, peer, slot, value, timeout_ms)
        return True
