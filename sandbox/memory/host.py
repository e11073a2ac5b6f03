"""Sealed shared memory on CPU: input arenas that a contender can only read, output arenas that it writes.

The trusted rank makes both. It maps inputs writable and then seals them (F_SEAL_FUTURE_WRITE), so that no other process can write
them, not even through /proc. Outputs are sealed against resizing, because truncation would kill the reader with SIGBUS.
"""

import ctypes
import fcntl
import mmap
import os
import weakref

import msgspec

F_ADD_SEALS = 1033
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE = 1, 2, 4, 16
PAGE = mmap.PAGESIZE
ALIGNMENT = 64
"""Alignment of the tensors in a slot, in bytes."""
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def _make(name: str, size: int) -> tuple[int, mmap.mmap]:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd, mmap.mmap(fd, size, flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def input_arena(size: int) -> tuple[int, mmap.mmap]:
    """A descriptor and this process's writable mapping; no other process can write. Size in bytes."""
    fd, mapping = _make("pkb-input", size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL)
    return fd, mapping


def output_arena(size: int, name: str = "pkb-output") -> tuple[int, mmap.mmap]:
    """A descriptor and this process's writable mapping; other processes can write, too. Size in bytes."""
    fd, mapping = _make(name, size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
    return fd, mapping


REPORT_BYTES = 64 << 10
BEGUN_AT = REPORT_BYTES - 8
"""Offset of a 64-bit count of the calls that a rank has begun in a batch."""


def map_input(fd: int) -> "ctypes.Array[ctypes.c_ubyte]":
    """Read-only mapping of an input arena; a write is a segmentation fault."""
    return _map(fd, mmap.PROT_READ)


def map_output(fd: int) -> "ctypes.Array[ctypes.c_ubyte]":
    """Writable mapping of an output arena."""
    return _map(fd, mmap.PROT_READ | mmap.PROT_WRITE)


def _map(fd: int, protection: int) -> "ctypes.Array[ctypes.c_ubyte]":
    """A mapping that keeps no descriptor open; Python's own keeps one.

    A kernel could send such a descriptor to its peers, and return their pages as its result without moving a byte.
    """
    size = os.fstat(fd).st_size
    address = _libc.mmap(None, size, protection, mmap.MAP_SHARED | _POPULATE, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map an arena of {size} bytes: {os.strerror(code)}")
    mapping = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(mapping, _libc.munmap, address, size).atexit = False
    return mapping


def up(size: int) -> int:
    """size rounded up to a multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class TensorPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of one tensor in an input slot."""

    name: str
    dtype: int
    """Index into `sandbox.memory.slots.DTYPES`."""
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the slot."""
