"""Moves a process that was forked outside into a jail that bubblewrap has built.

The process joins the namespaces of a process inside. Then it drops what bubblewrap, setpriv and prlimit take from a world that
they start. A check afterwards reads the result from /proc: a world does not run if a privilege is left.
"""

import contextlib
import ctypes
import os
import resource
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from sandbox.jail.profiles import CORE_BYTES, INSIDE, OPEN_FILES, PROCESSES, Profile
from sandbox.jail.seccomp import memory_file
from sandbox.machine.processes import kill_tree, tree

HOLD = ("/bin/sh", "-c", "echo; read -r end # keeps the jail of a sandbox.rank.launcher")
"""Prints a line and then waits for the end of its input. When it ends, bubblewrap ends with all processes inside."""

_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
_DUMPABLE, _SECCOMP, _DROP_BOUNDING, _NO_NEW_PRIVILEGES = 4, 22, 24, 38
_FILTER = 2
_CAPABILITIES_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


class _FilterProgram(ctypes.Structure):
    """A system-call filter as the kernel takes it: struct sock_fprog of linux/filter.h, instructions of eight bytes."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class NotInside(Exception):
    """A process could not be moved into the jail. The message names what is missing."""


def join(builder: int) -> tuple[int, int]:
    """Joins the namespaces of the process inside; returns its user id and group id.

    builder: process id of bubblewrap. This process keeps its PID namespace; its children are in the new one.

    Raises:
        NotInside: a namespace cannot be joined.
    """
    inside = tree(builder)[-1]
    if inside == builder:
        raise NotInside("bubblewrap has started no process inside")
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
    """Sets user and group, drops all privileges and installs the system-call filter.

    uid, gid: as `join` returned them; program: the filter's BPF instructions.

    Raises:
        NotInside: a privilege is left.
    """
    capability = 0
    while _libc.prctl(_DROP_BOUNDING, capability) == 0:
        capability += 1
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _require(_libc.capset(header, (ctypes.c_uint32 * 6)()) == 0, "cannot drop the capabilities")
    _libc.prctl(_DUMPABLE, 1, 0, 0, 0)  # a change of the user id has cleared it
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (CORE_BYTES, CORE_BYTES))
    install(program)
    _require_restricted(uid, gid)


def install(program: bytes) -> None:
    """Installs a system-call filter in this process for good, and refuses new privileges. Raises NotInside."""
    _require(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0, "cannot refuse new privileges")
    filter_ = _FilterProgram(len(program) // 8, program)
    _require(_libc.prctl(_SECCOMP, _FILTER, ctypes.byref(filter_), 0, 0) == 0, "cannot install the filter")


@lru_cache(maxsize=4)
def why_not(profile: Profile, program: bytes) -> str:
    """Why a jail of this profile cannot be joined on this machine, in one line; empty if it can. Builds a jail to test it.

    Containers may refuse it: reading another user's process takes CAP_SYS_PTRACE, which bubblewrap itself does not need.
    """
    read, write = os.pipe()
    try:
        with (
            contextlib.closing(profile.wrap(list(HOLD), INSIDE, {}, filter_fd=memory_file(program))) as wrapped,
            subprocess.Popen(
                wrapped.argv,
                **wrapped.inherited,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as builder,
        ):
            assert builder.stdout is not None
            try:
                if not builder.stdout.read(1):
                    return "bubblewrap ended before it started a process inside"
                if not (tries := os.fork()):
                    _try(builder.pid, program, write)
                os.waitpid(tries, 0)
            finally:
                kill_tree(builder.pid)
        os.set_blocking(read, False)
        said = os.read(read, 4096).decode(errors="replace")
    except OSError as error:
        return str(error)
    finally:
        for each in (read, write):
            os.close(each)
    return "" if said == "inside" else said


def _try(builder: int, program: bytes, write: int) -> NoReturn:
    """Does what the fork server does with a world, and reports the result."""
    try:
        ids = join(builder)
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            restrict(*ids, program)
            os.write(write, b"inside")
    except BaseException as error:
        os.write(write, str(error).encode())
    os._exit(0)


def _require_restricted(uid: int, gid: int) -> None:
    """Reads from /proc that no privilege is left. Raises NotInside."""
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
        raise NotInside(f"a world would keep {', '.join(left)}")


def _require(done: bool, what: str) -> None:
    if not done:
        raise NotInside(f"{what}: {os.strerror(ctypes.get_errno())}")
