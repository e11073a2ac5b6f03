"""Sealed shared memory on CPU: input arenas that a contender can only read, output arenas that it writes.

The trusted rank makes both arenas. Inputs: mapped writable here, then sealed so that nobody else can ever map or write
them (F_SEAL_FUTURE_WRITE), so reopening through /proc does not help either. Outputs: sealed against resizing, or a rank
could truncate the file and kill its reader with SIGBUS.
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
    """A file descriptor to hand out and this process's writable mapping of it; nobody else can write. Size in bytes."""
    fd, mapping = _make("pkb-input", size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL)
    return fd, mapping


def output_arena(size: int) -> tuple[int, mmap.mmap]:
    """A file descriptor to hand out and this process's mapping of it; both sides may write. Size in bytes."""
    fd, mapping = _make("pkb-output", size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
    return fd, mapping


REPORT_BYTES = 64 << 10
BEGUN_AT = REPORT_BYTES - 8
"""Where a rank counts the calls that it has begun in a batch, a 64-bit number, behind the text of a failure."""


def report_page(size: int = REPORT_BYTES) -> tuple[int, mmap.mmap]:
    """A small shared file in which a rank leaves the text of a failure."""
    fd, mapping = _make("pkb-report", size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
    return fd, mapping


def map_input(fd: int) -> mmap.mmap:
    """Read-only mapping of an input arena; a write is a segmentation fault."""
    return mmap.mmap(fd, 0, flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ)


def map_output(fd: int) -> mmap.mmap:
    """Writable mapping of an output arena."""
    return mmap.mmap(fd, 0, flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def up(size: int, multiple: int = 64) -> int:
    """size rounded up to a multiple."""
    return -(-size // multiple) * multiple
