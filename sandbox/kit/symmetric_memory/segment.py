"""One shared memory segment per world: an anonymous memory file that rank 0 makes and sends to the others.

A memory file has no name, so a crash leaves nothing behind. The size of /dev/shm (64 MiB in many containers) does
not limit it. It is sparse: untouched pages take no memory.
"""

import ctypes
import mmap
import os
import secrets
import socket
import time
from datetime import timedelta
from typing import Any

from sandbox.kit.errors import BarrierTimeout, SymmetricMemoryError, ranks_text

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


def connect(rank: int, world: int, store: Any, part_bytes: int, timeout_s: float, what: str = "symm") -> Segment:
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
