"""The heaps of all ranks in one process: their bytes as tensors, and the allocations in them."""

import bisect
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sandbox.kit.errors import SymmetricMemoryError
from sandbox.kit.layout import ALIGN, HEAD_BYTES, PAD_BYTES
from sandbox.kit.symmetric_memory.segment import Segment

DEFAULT_BYTES = 1 << 30
_MARGIN = 4096


_reserved = DEFAULT_BYTES


def reserve(nbytes: int) -> None:
    """Reserves at least `nbytes` of heap per rank on GPUs, before the heap is mapped. PKB_SYMM_BYTES overrides it."""
    global _reserved
    _reserved = max(_reserved, nbytes)


def heap_bytes(ranks_in_file: int = 0) -> int:
    """Bytes of heap per rank: PKB_SYMM_BYTES, else 1 GiB on CPU ranks and the reserved bytes on GPUs.

    On CPU ranks only touched pages cost memory. ranks_in_file: how many heaps share one memory file, to which the
    process's limit on file sizes applies; 0 for none.
    """
    named = os.environ.get("PKB_SYMM_BYTES")
    if named is None:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if not ranks_in_file or limit == resource.RLIM_INFINITY:
            return DEFAULT_BYTES if ranks_in_file else -(-_reserved // _MARGIN) * _MARGIN
        # A limit reduces the default. The system refuses an explicit size later.
        fitting = (limit // ranks_in_file - HEAD_BYTES) // _MARGIN * _MARGIN
        return max(min(DEFAULT_BYTES, fitting), _MARGIN)
    if not named.isdecimal() or int(named) < _MARGIN:
        raise SymmetricMemoryError(
            f"PKB_SYMM_BYTES must be a whole number of bytes, at least {_MARGIN}; it is {named!r}"
        )
    return -(-int(named) // _MARGIN) * _MARGIN


@dataclass(frozen=True)
class Allocation:
    """A buffer at the same offset in the heaps of all members of a team."""

    offset: int
    nbytes: int
    mask: int


class Heap:
    """The heaps of all ranks.

    parts: one uint8 tensor per rank, that rank's heap as this process maps it. pads: the address of each
    rank's signal pads.
    """

    def __init__(self, rank: int, parts: Sequence[torch.Tensor], pads: Sequence[int], keep: object = None) -> None:
        self.rank = rank
        self._keep = keep
        self.parts = list(parts)
        self.addresses = [part.data_ptr() for part in self.parts]
        self.pads = list(pads)
        self.bytes = self.parts[rank].numel()
        self.used = 0
        self._allocations: list[Allocation] = []
        self._offsets: list[int] = []

    def take(self, offset: int, nbytes: int, mask: int, what: str) -> torch.Tensor:
        """This rank's bytes at an offset that all members use. Raises SymmetricMemoryError if the heap is full."""
        if offset + nbytes > self.bytes:
            raise SymmetricMemoryError(
                f"the symmetric heap is full: {what} needs {nbytes} bytes, "
                f"{max(self.bytes - offset, 0)} of {self.bytes} are left; "
                "reuse buffers by tag, or set PKB_SYMM_BYTES"
            )
        self.used = -(-(offset + nbytes) // ALIGN) * ALIGN
        self._allocations.append(Allocation(offset, nbytes, mask))
        self._offsets.append(offset)
        return self.parts[self.rank][offset : offset + nbytes]

    def offset_of(self, tensor: torch.Tensor, mask: int) -> int:
        """The offset of a tensor (or a view of one) in the heap. Checks that the whole team has that buffer."""
        offset = tensor.data_ptr() - self.addresses[self.rank]
        index = bisect.bisect_right(self._offsets, offset) - 1
        if index < 0 or not 0 <= offset < self.bytes or offset >= self._end(index):
            raise SymmetricMemoryError(
                f"this tensor (shape {tuple(tensor.shape)}) is not symmetric memory: "
                "make it with `empty` or `out`, "
                "or copy it there with `stage`"
            )
        owner = self._allocations[index].mask
        if owner & mask != mask:
            raise SymmetricMemoryError("this buffer belongs to a smaller team: its other ranks have no such buffer")
        return offset

    def _end(self, index: int) -> int:
        allocation = self._allocations[index]
        return allocation.offset + max(allocation.nbytes, 1)


def host_heap(segment: Segment) -> Heap:
    """The heap behind the signal pads of each part of a host segment."""
    parts = [
        torch.frombuffer(
            segment.memory,
            dtype=torch.uint8,
            offset=rank * segment.part_bytes + HEAD_BYTES,
            count=segment.part_bytes - HEAD_BYTES,
        )
        for rank in range(segment.world)
    ]
    return Heap(segment.rank, parts, [segment.part_address(rank) for rank in range(segment.world)])


def pad_address(pads: int, mask: int) -> int:
    """A team's pad among a rank's pads."""
    return pads + mask * PAD_BYTES
