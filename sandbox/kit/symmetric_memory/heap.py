"""The heaps of all ranks in one process: their bytes as tensors, and the allocations in them.

On CPU ranks they lie in one segment per world: an anonymous memory file that rank 0 makes and sends to the others. It has no
name, so a crash leaves nothing behind. The size of /dev/shm (64 MiB in many containers) does not limit it. It is sparse:
untouched pages take no memory.
"""

import bisect
import ctypes
import mmap
import os
import resource
import secrets
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from sandbox.kit.errors import BarrierTimeout, SymmetricMemoryError, ranks_text
from sandbox.kit.layout import ALIGN, HEAD_BYTES, PAD_BYTES

_KEY = "pkb-kit/{}/socket"
_FAILED = "failed: "


class Segment:
    """The mapped segment: `world` parts of `part_bytes` each; part r belongs to rank r."""

    def __init__(self, memory: mmap.mmap, rank: int, world: int, part_bytes: int) -> None:
        self.memory = memory
        self.rank = rank
        self.world = world
        self.part_bytes = part_bytes
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def part_address(self, rank: int) -> int:
        """Where a rank's part begins in this process."""
        return self.address + rank * self.part_bytes


def connect_segment(
    rank: int, world: int, store: Any, part_bytes: int, timeout_s: float, what: str = "symm"
) -> Segment:
    """Makes (rank 0) or receives the world's segment and maps it. Collective.

    store: a torch.distributed store that all ranks share; what: names the segment, once per store. Raises BarrierTimeout
    with the missing ranks, and SymmetricMemoryError on every rank if the memory cannot be allocated.
    """
    key = _KEY.format(what)
    fd = _make(world, store, key, part_bytes, timeout_s) if rank == 0 else _receive(rank, store, key, timeout_s)
    try:
        memory = mmap.mmap(fd, world * part_bytes)
    except (OSError, ValueError) as error:
        raise SymmetricMemoryError(_too_large(world, part_bytes, error)) from None
    finally:
        os.close(fd)
    return Segment(memory, rank, world, part_bytes)


def _make(world: int, store: Any, key: str, part_bytes: int, timeout_s: float) -> int:
    try:
        fd = os.memfd_create("pkb-symm")
        os.ftruncate(fd, world * part_bytes)
    except OSError as error:
        text = _too_large(world, part_bytes, error)
        store.set(key, _FAILED + text)
        raise SymmetricMemoryError(text) from None
    if world == 1:
        return fd
    # An abstract socket leaves no file. Only processes that share the store can read its random name.
    name = "pkb-symm-" + secrets.token_hex(16)
    missing = set(range(1, world))
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(world)
        store.set(key, name)
        while missing:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                os.close(fd)
                raise _nobody(key, sorted(missing), timeout_s) from None
            with connection:
                connection.settimeout(timeout_s)
                peer = connection.recv(1)
                socket.send_fds(connection, [b"f"], [fd])
                missing.discard(peer[0] if peer else 0)
    return fd


def _receive(rank: int, store: Any, key: str, timeout_s: float) -> int:
    try:
        store.wait([key], timedelta(seconds=timeout_s))
    except RuntimeError:
        raise _nobody(key, [0], timeout_s) from None
    name = store.get(key).decode()
    if name.startswith(_FAILED):
        raise SymmetricMemoryError(name.removeprefix(_FAILED))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect("\0" + name)
            connection.sendall(bytes([rank]))
            _, fds, _, _ = socket.recv_fds(connection, 1, 1)
    except OSError as error:
        raise SymmetricMemoryError(f"rank 0 did not hand over the symmetric memory: {error}") from None
    if not fds:
        raise SymmetricMemoryError("rank 0 closed the connection before it handed over the symmetric memory")
    return fds[0]


def _nobody(key: str, missing: list[int], timeout_s: float) -> BarrierTimeout:
    what = key.split("/")[1]
    return BarrierTimeout(
        f"{ranks_text(missing)} did not reach its first {what} call within {timeout_s:g} s; the first one is collective",
        missing,
    )


def _too_large(world: int, part_bytes: int, error: Exception) -> str:
    return (
        f"cannot reserve {part_bytes >> 20} MiB of symmetric memory for each of {world} ranks ({error}); "
        "set PKB_SYMM_BYTES to a smaller heap"
    )


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
        self._allocations: list[tuple[int, int, int]] = []
        """(offset, end, mask of the team), in ascending order. They lie at the same offsets in the heaps of all members."""

    def take(self, offset: int, nbytes: int, mask: int, what: str) -> torch.Tensor:
        """This rank's bytes at an offset that all members use. Raises SymmetricMemoryError if the heap is full."""
        if offset + nbytes > self.bytes:
            raise SymmetricMemoryError(
                f"the symmetric heap is full: {what} needs {nbytes} bytes, "
                f"{max(self.bytes - offset, 0)} of {self.bytes} are left; "
                "reuse buffers by tag, or set PKB_SYMM_BYTES"
            )
        self.used = -(-(offset + nbytes) // ALIGN) * ALIGN
        self._allocations.append((offset, offset + max(nbytes, 1), mask))
        return self.parts[self.rank][offset : offset + nbytes]

    def offset_of(self, tensor: torch.Tensor, mask: int) -> int:
        """The offset of a tensor (or a view of one) in the heap. Checks that the whole team has that buffer."""
        offset = tensor.data_ptr() - self.addresses[self.rank]
        before = bisect.bisect_right(self._allocations, offset, key=lambda allocation: allocation[0])
        _, end, owner = self._allocations[before - 1] if before else (0, 0, 0)
        if not 0 <= offset < min(self.bytes, end):
            raise SymmetricMemoryError(
                f"this tensor (shape {tuple(tensor.shape)}) is not symmetric memory: "
                "make it with `empty` or `out`, "
                "or copy it there with `stage`"
            )
        if owner & mask != mask:
            raise SymmetricMemoryError("this buffer belongs to a smaller team: its other ranks have no such buffer")
        return offset


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
