"""Restricts signals and abstract sockets of a process tree to that tree, with Landlock (Linux 6.12 or newer)."""

import ctypes
import os

CREATE, ADD, RESTRICT = 444, 445, 446
"""Landlock's system calls; the numbers are the same on every architecture."""
MOVE = 1 << 13
"""The right to move files between folders. Every ruleset refuses it unless a rule allows it."""
ABSTRACT_SOCKETS, SIGNALS = 1, 2
NEEDED_ABI = 6
_O_PATH = os.O_PATH | os.O_CLOEXEC
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)


def is_available() -> bool:
    """Whether this kernel can restrict signals."""
    return int(_libc.syscall(CREATE, None, 0, 1)) >= NEEDED_ABI


def restrict() -> None:
    """Refuses signals and abstract sockets to processes outside, for this thread and all that it starts. Cannot be undone.

    Raises:
        OSError: the kernel cannot do it.
    """
    if not is_available():
        raise OSError("this kernel cannot restrict signals: Linux 6.12 with Landlock is needed")
    attributes = (ctypes.c_uint64 * 3)(MOVE, 0, ABSTRACT_SOCKETS | SIGNALS)  # files, network, scopes
    ruleset = _checked(_libc.syscall(CREATE, attributes, ctypes.sizeof(attributes), 0))
    root = os.open("/", _O_PATH)
    try:
        rule = MOVE.to_bytes(8, "little") + root.to_bytes(4, "little")
        _checked(_libc.syscall(ADD, ruleset, 1, rule, 0))
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_libc.syscall(RESTRICT, ruleset, 0))
    finally:
        os.close(root)
        os.close(ruleset)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return int(result)
