"""The first program of a world that has no PID namespace: puts Landlock's rules on the world, starts it, and ends it as a whole.

inside '{"filter": FD, "read": [PATH...], "list": [...], "write": [...], "devices": [...]}' PROGRAM ARGUMENT...
inside '{}' PROGRAM ARGUMENT...    within bubblewrap (profile nested): no signal to processes outside

Two sets of rules, one within the other: this process is behind the outer one, the world behind both. So the world cannot signal
this process, and what this process may signal is the world and nothing else: all of it can be killed with one call, which no
fork outruns. That happens on SIGTERM, when the process that started this is gone, and when the world's first process has ended.

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
from sandbox.jail.filter_program import FilterProgram
from sandbox.jail.supervisor import PIDFD_GETFD, Supervisor
from sandbox.machine.processes import adopt_orphans, die_with_parent

SCOPED = landlock.ABSTRACT_SOCKETS | landlock.SIGNALS
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32
_PR_SET_PDEATHSIG = 1
FAILED = 71
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Restricts, starts PROGRAM, serves it while it runs, and leaves with its status."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    files, program = _prepared(plan)
    landlock.restrict(SCOPED)
    _require_scope()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, frame: _end(128 + number))
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            _become(sys.argv[2:], files, program, theirs)
        except BaseException:
            traceback.print_exc()
        os._exit(FAILED)
    theirs.close()
    process = os.pidfd_open(child)
    notifications = _notifications(process, ours) if program else None
    ours.close()
    _keep_only(
        {fd for fd in (process, notifications) if fd is not None} | (files.descriptors if files else set())
    )
    _serve(process, notifications)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _end(code if code >= 0 else 128 - code)


def _prepared(plan: dict[str, Any]) -> tuple[landlock.Files | None, bytes]:
    """What the plan says about files, and the program of its filter; nothing of either within bubblewrap, which has its own."""
    if not plan:
        return None, b""
    program = os.read(plan["filter"], 1 << 16)
    os.close(plan["filter"])
    files = landlock.Files()
    files.allow(plan["read"], landlock.READ)
    files.allow(plan["list"], landlock.READ_DIR)
    files.allow(plan["write"], landlock.READ | landlock.WRITE)
    files.allow(plan["devices"], landlock.DEVICE)
    return files, program


def _require_scope() -> None:
    """Ending the world takes everything that may be signalled: that must not be more than the world."""
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    raise OSError("Landlock's rules do not keep signals from other processes")


def _become(argv: list[str], files: landlock.Files | None, program: bytes, keeper: socket.socket) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    landlock.restrict(SCOPED, files, landlock.BIND_AND_CONNECT if program else 0)
    if program:
        keeper.send(str(_install(program)).encode())
        keeper.recv(1)
    os.execvp(argv[0], argv)


def _notifications(process: int, child: socket.socket) -> int:
    """The descriptor at which the child's supervised calls arrive, fetched from it."""
    number = child.recv(16)
    if not number:
        os._exit(FAILED)  # the child has said why
    fd = int(_libc.syscall(PIDFD_GETFD, process, int(number), 0))
    if fd < 0:
        raise OSError(
            ctypes.get_errno(), "the world's first process does not hand over the filter's listener"
        )
    child.send(b"g")
    return fd


def _serve(process: int, notifications: int | None) -> None:
    """Makes the world's connections, where they are supervised, until its first process has ended."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    supervisor = None
    if notifications is not None:
        supervisor = Supervisor(notifications)
        poll.register(notifications, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if process in ready:
            return
        if supervisor:
            supervisor.answer()


def _end(code: int) -> NoReturn:
    """Kills the world, reaps it, and leaves."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        while True:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ProcessLookupError, PermissionError, ChildProcessError):
        os._exit(code)


def _install(program: bytes) -> int:
    """Puts the filter on this process; returns the descriptor that its notifications arrive at."""
    number = _SECCOMP.get(platform.machine())
    if number is None:
        raise OSError(f"no supervised filter on {platform.machine()}")
    filter_ = FilterProgram.of(program)
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
