"""The referee's side of the fork servers (sandbox/rank/fork_server.py), one per kind of device."""

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox.jail.profiles import INSIDE, environment, python_module, python_path
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.processes import kill_tree
from sandbox.protocol import launch_plan
from sandbox.protocol.launch_plan import MOST_DESCRIPTORS, ForkOrder

MODULE = "sandbox.rank.fork_server"
_MFD_EXEC = 0x10 if Path("/proc/sys/vm/memfd_noexec").exists() else 0
"""The flag for an executable memory file, since Linux 6.3."""


class ForkServers:
    """The fork servers of one referee, each started when first needed."""

    def __init__(self) -> None:
        self._servers: dict[str, ForkServer] = {}

    def of(self, kind: DeviceKind) -> "ForkServer":
        """The running server for a kind of device; started if there is none.

        Raises OSError if this machine has no process, descriptor or memory left.
        """
        found = self._servers.get(kind.rank_module)
        if found is None or not found.runs:
            found = self._servers[kind.rank_module] = ForkServer(kind)
        return found

    def close(self) -> None:
        """Ends all servers and their worlds."""
        while self._servers:
            self._servers.popitem()[1].close()


def sealed_copy(program: Path) -> int:
    """A descriptor of a copy of a program in memory that nobody can change.

    A forked world sees the fork server's program as /proc/self/exe, in a mount that can be written to. A kernel could replace
    the program, and its code would then run with the rights of the file's owner.
    """
    copy = os.memfd_create(program.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | _MFD_EXEC)
    try:
        with open(copy, "wb", closefd=False) as target, program.open("rb") as source:
            shutil.copyfileobj(source, target)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(copy)
        raise
    return copy


class ForkServer:
    """One fork server, from its start until `close`."""

    def __init__(self, kind: DeviceKind) -> None:
        """Starts the server. It serves its first order after 1 to 2 s."""
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(self._orders.close)
            interpreter = sealed_copy(Path(sys.executable))
            undo.callback(os.close, interpreter)
            extra = {"PYTHONPATH": python_path()} | kind.environment(())
            self._process = subprocess.Popen(
                python_module(MODULE, str(theirs.fileno()), kind.rank_module),
                executable=f"/proc/self/fd/{interpreter}",
                pass_fds=[theirs.fileno(), interpreter],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None,
                env=environment(INSIDE, extra),
                cwd="/",
                start_new_session=True,
            )
            undo.pop_all()
            os.close(interpreter)

    @property
    def runs(self) -> bool:
        """Whether its process is running."""
        return self._process.poll() is None

    def fork(self, order: ForkOrder, fds: Sequence[int]) -> None:
        """Orders the fork of a world and returns at once. fds: the descriptors to which the order refers by index.

        Raises OSError if the server is gone or its queue is full.
        """
        if len(fds) > MOST_DESCRIPTORS:
            raise OSError(f"a world of {order.plan.ranks} ranks has too many descriptors to be forked")
        socket.send_fds(self._orders, [launch_plan.encode(order)], list(fds), socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Kills the server."""
        self._orders.close()
        kill_tree(self._process.pid)
        self._process.wait()
