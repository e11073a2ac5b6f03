"""The first process of a world: started as a program of its own, or forked by the fork server into walls that stand already."""

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from sandbox.jail import joining, kernel_cache
from sandbox.jail.memory import Bound
from sandbox.jail.profiles import Wrapped, python_module, python_path
from sandbox.machine.placement import cores_of
from sandbox.machine.processes import kill_tree, tree
from sandbox.protocol import launch_plan
from sandbox.protocol.launch_plan import ForkOrder, LaunchPlan, Walls
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.rank_wire import RankEnds
from sandbox.worlds.world_folder import WorldFolder
from sandbox.worlds.world_spec import Quarters

SHOWN = "compiled"
"""Of a world's folder, the one in which it finds what its kernel's text has compiled before."""
BORN_SECONDS = 15.0
"""A fork server that imports torch takes so long at the most, on a busy machine, until it has forked its first world."""


class FirstProcess(Protocol):
    """A world's first process, with all that it has started."""

    @property
    def is_there(self) -> bool:
        """Whether it has been started yet."""

    def tree(self) -> list[int]:
        """Waits until it has been started. Process ids: the first process first, the ranks last while nothing but the harness
        runs in the world. Empty where there is none."""

    def kill(self) -> bool:
        """Kills all of them; True when they are gone."""


class StartedProgram:
    """See FirstProcess: the launcher is a program of its own, behind its jail."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def is_there(self) -> bool:
        return True

    def tree(self) -> list[int]:
        return tree(self._process.pid)

    def kill(self) -> bool:
        gone = kill_tree(self._process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.2)
        return gone


class Forked:
    """See FirstProcess: forked by the fork server."""

    def __init__(self, born: socket.socket, walls: "subprocess.Popen[bytes] | None") -> None:
        """born: says the process id, and hands over a handle; walls: bubblewrap around a process that does nothing."""
        self._born = born
        self._walls = walls
        self._pid = 0
        self._handle: int | None = None

    @property
    def is_there(self) -> bool:
        return self._found(0.0)

    def tree(self) -> list[int]:
        return tree(self._pid) if self._found(BORN_SECONDS) else []

    def kill(self) -> bool:
        """A world that has not been forked yet finds no walls and nobody to talk to, and ends by itself."""
        gone = True
        if self._walls is not None:  # with its namespace goes everything that is in it
            gone = kill_tree(self._walls.pid)
            if self._walls.stdin is not None:
                self._walls.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._walls.wait(timeout=0.2)
        if self._found(0.0):
            gone = kill_tree(self._pid) and gone
        self._born.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        return gone

    def _found(self, seconds: float) -> bool:
        """Whether the process is there, or comes within these seconds. Its number may be another's once it has ended."""
        if self._handle is None and self._born.fileno() >= 0 and _is_readable(self._born.fileno(), seconds):
            said, handles, _, _ = socket.recv_fds(self._born, 32, 1)
            self._born.close()
            if handles:
                self._pid, self._handle = int(said), handles[0]
        return self._handle is not None and not _is_readable(self._handle, 0.0)


def _is_readable(fd: int, seconds: float) -> bool:
    """Whether there is something to read within these seconds, or the other end is closed; of a process: whether it has ended."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def start(
    quarters: Quarters,
    ends: Sequence[RankEnds],
    status: int,
    bound: Bound,
    folder: WorldFolder,
    servers: ForkServers,
) -> FirstProcess:
    """Starts a world's launcher within its bound. ends, status: descriptors that it inherits; the caller closes its own copies.

    Raises OSError where this machine has no process, descriptor or memory left.
    """
    profile, kind = quarters.jail.profile, quarters.kind
    plan = LaunchPlan(
        ranks=quarters.ranks,
        trusted=quarters.trusted,
        device_module=kind.rank_module,
        folder=str(profile.inside(folder.path)),
        cores=[cores_of(rank, quarters.ranks, quarters.gpus) for rank in range(quarters.ranks)],
        sockets=[end.sock for end in ends],
        reports=[end.report for end in ends],
        pipes=[end.pipe for end in ends],
        status=status,
    )
    program = quarters.jail.filter
    if profile.forks and (program is None or not joining.why_not(profile, program)):
        return _forked(quarters, plan, bound, folder, servers)
    argv = python_module("sandbox.rank.launcher", launch_plan.encode(plan).decode())
    passed = [*plan.sockets, *plan.reports, *plan.pipes, plan.status]
    with _wrapped(quarters, argv, folder.path) as wrapped:
        process = subprocess.Popen(
            bound.starts(wrapped.argv),
            pass_fds=[*passed, *wrapped.fds],
            stdin=subprocess.DEVNULL,
            stdout=plan.pipes[0],
            stderr=plan.pipes[0],
            env=wrapped.env,
            cwd=folder.path,
            start_new_session=True,
        )
    return StartedProgram(process)


def _forked(
    quarters: Quarters, plan: LaunchPlan, bound: Bound, folder: WorldFolder, servers: ForkServers
) -> Forked:
    """Has walls built around a process that does nothing, if there are walls, and orders the world."""
    server = servers.of(quarters.kind)
    with contextlib.ExitStack() as afterwards, contextlib.ExitStack() as undo:
        wrapped = afterwards.enter_context(_wrapped(quarters, list(joining.HOLD), folder.path))
        born, theirs = socket.socketpair()
        undo.callback(born.close)
        afterwards.callback(theirs.close)
        fds = [*plan.sockets, *plan.reports, *plan.pipes, plan.status, theirs.fileno()]
        builder: subprocess.Popen[bytes] | None = None
        walls: Walls | None = None
        if quarters.jail.filter is not None:
            builder = subprocess.Popen(
                bound.starts(wrapped.argv),
                pass_fds=wrapped.fds,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=plan.pipes[0],
                env=wrapped.env,
                cwd=folder.path,
                start_new_session=True,
            )
            undo.callback(kill_tree, builder.pid)
            assert builder.stdout is not None
            afterwards.callback(builder.stdout.close)
            fds.append(builder.stdout.fileno())
            walls = Walls(builder.pid, fds.index(builder.stdout.fileno()), quarters.jail.filter)
        order = ForkOrder(
            plan=_by_places(plan, fds),
            environment=wrapped.env,
            folder=plan.folder,
            group=str(bound.group.path) if bound.group else "",
            born=fds.index(theirs.fileno()),
            walls=walls,
        )
        server.fork(order, fds)
        undo.pop_all()
    return Forked(born, builder)


def _by_places(plan: LaunchPlan, fds: list[int]) -> LaunchPlan:
    """A plan whose descriptors are places in a list."""
    return msgspec.structs.replace(
        plan,
        sockets=[fds.index(fd) for fd in plan.sockets],
        reports=[fds.index(fd) for fd in plan.reports],
        pipes=[fds.index(fd) for fd in plan.pipes],
        status=fds.index(plan.status),
    )


@contextlib.contextmanager
def _wrapped(quarters: Quarters, argv: list[str], folder: Path) -> Iterator[Wrapped]:
    """A command behind the walls of a world. The baseline's, too: what they cost must cost all worlds the same."""
    kind = quarters.kind
    extra = {"PYTHONPATH": python_path()} | kind.environment(quarters.gpus)
    readable = quarters.readable
    if quarters.jail.name == "none":
        cache = kernel_cache.prepared()
    else:
        cache = folder / SHOWN
        cache.mkdir(mode=0o755)
        readable = (*readable, cache)
    if cache is not None:
        extra["PKB_KERNEL_CACHE"] = str(cache)
    wrapped = quarters.jail.wrap(argv, folder, extra, readable, kind.device_files(quarters.gpus))
    try:
        yield wrapped
    finally:
        for fd in wrapped.fds:
            os.close(fd)
