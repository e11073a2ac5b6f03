"""Puts a process that was forked outside behind walls that stand already: the namespaces of a process inside, then all else
that bubblewrap, setpriv and prlimit put on a world that they start.

A process that is forked has not been started by them, so what they would have taken from it is taken here, and looked up
afterwards: a world does not run where anything of it is left.
"""

import ctypes
import os
import resource
from pathlib import Path

from sandbox.jail.filter_program import FilterProgram
from sandbox.jail.profiles import CORE_BYTES, OPEN_FILES, PROCESSES
from sandbox.machine.processes import tree

_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_DUMPABLE, _SECCOMP, _DROP_BOUNDING, _NO_NEW_PRIVILEGES = 4, 22, 24, 38
_FILTER = 2
_CAPABILITIES_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


class NotInside(Exception):
    """A process could not be put behind the walls. The message says what is missing."""


def join(builder: int) -> tuple[int, int]:
    """Joins the namespaces of the process that bubblewrap has put behind its walls; returns the ids of its user and group.

    builder: process id of bubblewrap. This process itself stays in its PID namespace: its children are in the new one.

    Raises:
        NotInside: a namespace cannot be joined.
    """
    inside = tree(builder)[-1]
    if inside == builder:
        raise NotInside("bubblewrap has put nothing behind its walls")
    flags = 0
    for name, flag in _NAMESPACES.items():
        if os.stat(f"/proc/{inside}/ns/{name}").st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            flags |= flag
    facts = os.stat(f"/proc/{inside}")
    handle = os.pidfd_open(inside)
    try:
        _require(_libc.setns(handle, flags) == 0, "cannot join the namespaces")
    finally:
        os.close(handle)
    return facts.st_uid, facts.st_gid


def restrict(uid: int, gid: int, program: bytes) -> None:
    """Gives this process a user and a group, and takes all privileges from it, and the system calls that no kernel needs.

    uid, gid: as `join` returned them; program: the filter's BPF instructions.

    Raises:
        NotInside: something is left.
    """
    capability = 0
    while _libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0) == 0:
        capability += 1
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _require(_libc.capset(header, (ctypes.c_uint32 * 6)()) == 0, "cannot drop the capabilities")
    _libc.prctl(_DUMPABLE, 1, 0, 0, 0)  # as after an execve; a change of the user id ends it
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (CORE_BYTES, CORE_BYTES))
    _require(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0, "cannot refuse new privileges")
    filter_ = FilterProgram.of(program)
    _require(_libc.prctl(_SECCOMP, _FILTER, ctypes.byref(filter_), 0, 0) == 0, "cannot install the filter")
    _require_restricted(uid, gid)


def _require_restricted(uid: int, gid: int) -> None:
    """Looks up what the kernel says of this process."""
    lines = (line.partition(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    facts = {name: value for name, _, value in lines}
    expected = {
        "Uid": "\t".join([str(uid)] * 4),
        "Gid": "\t".join([str(gid)] * 4),
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16),
        "NoNewPrivs": "1",
        "Seccomp": str(_FILTER),
    }
    left = [f"{name} {facts.get(name)}" for name, value in expected.items() if facts.get(name) != value]
    if left:
        raise NotInside(f"a world would have kept {', '.join(left)}")


def _require(done: bool, what: str) -> None:
    if not done:
        raise NotInside(f"{what}: {os.strerror(ctypes.get_errno())}")
