"""Sealed shared memory on CPU: input arenas that a contender can only read, output arenas that it writes.

The trusted rank makes both. It maps inputs writable and then seals them (F_SEAL_FUTURE_WRITE), so that no other process can write
them, not even through /proc. Outputs are sealed against resizing, because truncation would kill the reader with SIGBUS.
"""

import fcntl
import mmap
import os

F_ADD_SEALS = 1033
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE = 1, 2, 4, 16
PAGE = mmap.PAGESIZE
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)


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


def report_page(size: int = REPORT_BYTES) -> tuple[int, mmap.mmap]:
    """A small shared file for the text of a rank's failure."""
    return output_arena(size, "pkb-report")


def map_input(fd: int) -> mmap.mmap:
    """Read-only mapping of an input arena; a write is a segmentation fault."""
    return mmap.mmap(fd, 0, flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ)


def map_output(fd: int) -> mmap.mmap:
    """Writable mapping of an output arena."""
    return mmap.mmap(fd, 0, flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def up(size: int, multiple: int = 64) -> int:
    """size rounded up to a multiple."""
    return -(-size // multiple) * multiple
