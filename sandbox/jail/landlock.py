"""Landlock: file, socket and signal rules that a process puts on itself and its descendants, without any privilege."""

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

CREATE, ADD, RESTRICT = 444, 445, 446
"""The three system calls, which have these numbers on every architecture."""
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
ALL_FILES = (1 << 16) - 1
MOVE = 1 << 13
"""From one folder to another, which every ruleset refuses that does not allow it."""
ON_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
MAKE_SPECIAL = (1 << 6) | (1 << 9) | (1 << 11)
"""Device files and sockets with a path."""
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = ALL_FILES & ~(MAKE_SPECIAL | IOCTL_DEV)
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
BIND_AND_CONNECT = 3
ABSTRACT_SOCKETS, SIGNALS = 1, 2
NEEDED_ABI = 6
"""The first version that scopes abstract sockets and signals (Linux 6.12)."""
_O_PATH = os.O_PATH | os.O_CLOEXEC
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


class NoLandlock(OSError):
    """This kernel has no Landlock, or an older one than is needed."""


def abi() -> int:
    """The version of Landlock in this kernel; 0 where there is none."""
    return max(int(_libc.syscall(CREATE, None, 0, 1)), 0)


class Files:
    """Paths with what may be done beneath each; everything else is refused. Keeps the paths open.

    A rule is on an inode. Those of /proc are made anew when no descriptor holds them, so their maker keeps this open.
    """

    def __init__(self) -> None:
        self.rules: list[tuple[int, int]] = []

    @property
    def descriptors(self) -> set[int]:
        """What must stay open for the rules to hold."""
        return {fd for fd, _ in self.rules}

    def allow(self, paths: Iterable[str | Path], rights: int) -> None:
        """Adds paths; those that are not there are left out."""
        for path in paths:
            try:
                fd = os.open(path, _O_PATH)
            except OSError:
                continue
            is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
            self.rules.append((fd, rights if is_folder else rights & ON_A_FILE))


def restrict(scoped: int, files: Files | None = None, net: int = 0) -> None:
    """Puts this thread and all that it will start behind the rules; there is no way back.

    scoped: ABSTRACT_SOCKETS | SIGNALS, refused towards processes that are not behind the same rules; files: None leaves files
    as they are; net: BIND_AND_CONNECT refuses both for TCP, 0 leaves them.

    Raises:
        NoLandlock: the kernel cannot.
    """
    if abi() < NEEDED_ABI:
        raise NoLandlock(
            f"this kernel has version {abi()} of Landlock, and {NEEDED_ABI} is needed (Linux 6.12)"
        )
    handled = ALL_FILES
    if files is None:
        handled, files = MOVE, Files()
        files.allow(["/"], MOVE)
    attributes = _Ruleset(handled, net, scoped)
    ruleset = _checked(
        _libc.syscall(CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes), 0), "Landlock's rules"
    )
    try:
        for fd, rights in files.rules:
            rule = _Beneath(rights, fd)
            _checked(_libc.syscall(ADD, ruleset, 1, ctypes.byref(rule), 0), "a Landlock rule")
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
        _checked(_libc.syscall(RESTRICT, ruleset, 0), "Landlock")
    finally:
        os.close(ruleset)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise NoLandlock(number, f"{what}: {os.strerror(number)}")
    return int(result)
