"""The first program of a world behind Landlock: puts the rules on, then starts the world's own first process.

inside '{"filter": FD, "read": [PATH...], "list": [...], "write": [...], "devices": [...]}' PROGRAM ARGUMENT...
inside '{}' PROGRAM ARGUMENT...    within bubblewrap (profile nested): no signal to processes outside

Standard library only: it runs before the world's paths are set.
"""

import ctypes
import json
import os
import platform
import select
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from sandbox.jail import landlock
from sandbox.jail.supervisor import PIDFD_GETFD, Supervisor
from sandbox.processes import adopt_orphans, die_with_parent

SCOPED = landlock.ABSTRACT_SOCKETS | landlock.SIGNALS
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32
FAILED = 71
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main() -> NoReturn:
    """Restricts, and becomes PROGRAM or its supervisor."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    argv = sys.argv[2:]
    if not plan:
        landlock.restrict(SCOPED)
        os.execvp(argv[0], argv)
    _supervise(plan, argv)


def _supervise(plan: dict[str, Any], argv: list[str]) -> NoReturn:
    die_with_parent()
    adopt_orphans()
    program = os.read(plan["filter"], 1 << 16)
    os.close(plan["filter"])
    files = landlock.Files()
    files.allow(plan["read"], landlock.READ)
    files.allow(plan["list"], landlock.READ_DIR)
    files.allow(plan["write"], landlock.READ | landlock.WRITE)
    files.allow(plan["devices"], landlock.DEVICE)
    # What holds for the world's sockets must hold for whoever connects them, which is this process.
    landlock.restrict(SCOPED)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            die_with_parent()
            landlock.restrict(SCOPED, files, landlock.BIND_AND_CONNECT)
            notifications = _install(program)
            theirs.send(str(notifications).encode())
            theirs.recv(1)
            os.execvp(argv[0], argv)
        except BaseException:
            traceback.print_exc()
        os._exit(FAILED)
    theirs.close()
    process = os.pidfd_open(child)
    number = ours.recv(16)
    if not number:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    notifications = _libc.syscall(PIDFD_GETFD, process, int(number), 0)
    if notifications < 0:
        raise OSError(
            ctypes.get_errno(), "the world's first process does not hand over the filter's listener"
        )
    ours.send(b"g")
    ours.close()
    _keep_only({process, notifications, *(fd for fd, _ in files.rules)})
    supervisor = Supervisor(notifications)
    poll = select.poll()
    for fd in (process, notifications):
        poll.register(fd, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if ready.get(notifications, 0) & select.POLLIN:
            supervisor.answer()
        elif process in ready:
            break
        elif ready:  # nobody is left behind the filter
            poll.unregister(notifications)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:  # as the world's first process ended, so does this one
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _install(program: bytes) -> int:
    """Puts the filter on this process; returns the descriptor that its notifications arrive at."""
    number = _SECCOMP.get(platform.machine())
    if number is None:
        raise OSError(f"no supervised filter on {platform.machine()}")
    filter_ = _Program(len(program) // 8, program)
    fd = _libc.syscall(number, _SET_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, ctypes.byref(filter_))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "the system-call filter cannot be installed with a listener")
    return int(fd)


def _keep_only(descriptors: set[int]) -> None:
    """Closes the rest, the world's sockets and pipes among them: their other ends must see when the world lets go of them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in descriptors:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing's own


if __name__ == "__main__":
    main()
