"""The heaps of all ranks in one process: their bytes as tensors, and the allocations in them.

On CPU ranks each lies in an anonymous memory file that its rank makes and sends to the others. It has no name, so a crash
leaves nothing behind. The size of /dev/shm (64 MiB in many containers) does not limit it. It is sparse:
untouched pages take no memory.
"""

import bisect
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
from sandbox.kit.layout import ALIGN, HEAD_BYTES


def exchange(rank: int, world: int, store: Any, what: str, mine: int, timeout_s: float) -> list[int]:
    """The descriptors of all ranks, with `mine` in this rank's place. The caller closes the others. Collective.

    store: a torch.distributed store that all ranks share; what: names the exchange, once per store, by the module of the
    kit and perhaps more behind a slash. Raises BarrierTimeout with the missing ranks, SymmetricMemoryError if a rank closes
    its connection without a descriptor.
    """
    deadline = time.monotonic() + timeout_s
    others = [peer for peer in range(world) if peer != rank]
    found = {rank: mine}
    calls: dict[int, socket.socket] = {}
    # An abstract socket leaves no file. Only processes that share the store can read its random name.
    name = "pkb-kit-" + secrets.token_hex(16)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(world)
        store.set(f"pkb-kit/{what}/{rank}", name)
        try:
            # A connect returns before it is accepted, so all ranks connect first.
            for peer in others:
                store.wait([f"pkb-kit/{what}/{peer}"], timedelta(seconds=_left(deadline)))
                calls[peer] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                calls[peer].connect("\0" + store.get(f"pkb-kit/{what}/{peer}").decode())
            for _ in others:
                listener.settimeout(_left(deadline))
                connection, _ = listener.accept()
                with connection:
                    socket.send_fds(connection, [b"f"], [mine])
            for peer in others:
                calls[peer].settimeout(_left(deadline))
                _, fds, _, _ = socket.recv_fds(calls[peer], 1, 1)
                if not fds:
                    raise SymmetricMemoryError(f"rank {peer} hung up before it shared its memory")
                found[peer] = fds[0]
        except (OSError, RuntimeError) as error:  # a store raises RuntimeError if the key is not set in time
            for peer in found.keys() - {rank}:
                os.close(found[peer])
            if isinstance(error, SymmetricMemoryError):
                raise
            missing = [peer for peer in others if peer not in found]
            raise BarrierTimeout(
                f"{ranks_text(missing)} did not reach its first {what.split('/')[0]} call within {timeout_s:g} s; "
                "the first one is collective",
                missing,
            ) from None
        finally:
            for connection in calls.values():
                connection.close()
    return [found[peer] for peer in range(world)]


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


DEFAULT_BYTES = 1 << 30
_MARGIN = 4096
_reserved = DEFAULT_BYTES


def reserve(nbytes: int) -> None:
    """Reserves at least `nbytes` of heap per rank on GPUs, before the heap is mapped. PKB_SYMM_BYTES overrides it."""
    global _reserved
    _reserved = max(_reserved, nbytes)


def heap_bytes(in_file: bool = False) -> int:
    """Bytes of heap per rank: PKB_SYMM_BYTES, else 1 GiB on CPU ranks and the reserved bytes on GPUs.

    On CPU ranks only touched pages cost memory. in_file: for these, whose heaps are memory files: the process's limit on
    file sizes applies.
    """
    named = os.environ.get("PKB_SYMM_BYTES")
    if named is None:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if not in_file or limit == resource.RLIM_INFINITY:
            return DEFAULT_BYTES if in_file else -(-_reserved // _MARGIN) * _MARGIN
        # A limit reduces the default. The system refuses an explicit size later.
        fitting = (limit - HEAD_BYTES) // _MARGIN * _MARGIN
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


def host_heap(rank: int, world: int, store: Any, nbytes: int, timeout_s: float, what: str = "symm") -> Heap:
    """The heaps of all CPU processes, of `nbytes` behind each one's signal pads. Collective.

    store, what: as for `exchange`, whose errors it raises; also SymmetricMemoryError if memory cannot be allocated.
    """
    fds: list[int] = []
    try:
        fds.append(os.memfd_create("pkb-symm"))
        os.ftruncate(fds[0], HEAD_BYTES + nbytes)
        fds = exchange(rank, world, store, what, fds[0], timeout_s)
        files = [mmap.mmap(fd, HEAD_BYTES + nbytes) for fd in fds]
    except (OSError, ValueError) as error:
        raise SymmetricMemoryError(
            f"cannot reserve {nbytes >> 20} MiB of symmetric memory for each of {world} ranks ({error}); "
            "set PKB_SYMM_BYTES to a smaller heap"
        ) from None
    finally:
        for fd in fds:
            os.close(fd)
    parts = [torch.frombuffer(file, dtype=torch.uint8, offset=HEAD_BYTES, count=nbytes) for file in files]
    return Heap(rank, parts, [part.data_ptr() - HEAD_BYTES for part in parts])
