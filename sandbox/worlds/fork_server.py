"""The referee's end of the fork servers (sandbox/rank/fork_server.py): one for each kind of device, started when first needed."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence

from sandbox.jail import profiles
from sandbox.jail.profiles import INSIDE, import_paths
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.processes import kill_tree
from sandbox.protocol import launch_plan
from sandbox.protocol.launch_plan import MOST_DESCRIPTORS, ForkOrder

MODULE = "sandbox.rank.fork_server"


class ForkServers:
    """The fork servers of one referee."""

    def __init__(self) -> None:
        self._servers: dict[str, ForkServer] = {}

    def of(self, kind: DeviceKind) -> "ForkServer":
        """The server for a kind of device; a fresh one where there is none, or none any more.

        Raises OSError where this machine has no process, descriptor or memory left.
        """
        found = self._servers.get(kind.rank_module)
        if found is None or not found.runs:
            found = self._servers[kind.rank_module] = ForkServer(kind)
        return found

    def close(self) -> None:
        """Ends them; worlds that they have forked end with them."""
        while self._servers:
            self._servers.popitem()[1].close()


class ForkServer:
    """One fork server, from its start until `close`."""

    def __init__(self, kind: DeviceKind) -> None:
        """Starts it; it takes a second or two until it serves the first order."""
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(self._orders.close)
            extra = {"PYTHONPATH": os.pathsep.join(map(str, import_paths()))} | kind.environment(())
            self._process = subprocess.Popen(
                profiles.python_module(MODULE, str(theirs.fileno()), kind.rank_module),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None,
                env=profiles.environment(INSIDE, extra),
                cwd="/",
                start_new_session=True,
            )
            undo.pop_all()

    @property
    def runs(self) -> bool:
        """Whether its process has not ended."""
        return self._process.poll() is None

    def fork(self, order: ForkOrder, fds: Sequence[int]) -> None:
        """Orders a world; returns at once. fds: the descriptors that the order names by their places.

        Raises OSError where the server is gone or takes no more orders.
        """
        if len(fds) > MOST_DESCRIPTORS:
            raise OSError(f"a world of {order.plan.ranks} ranks has too many descriptors to be forked")
        socket.send_fds(self._orders, [launch_plan.encode(order)], list(fds), socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Kills the server."""
        self._orders.close()
        kill_tree(self._process.pid)
        self._process.wait()
