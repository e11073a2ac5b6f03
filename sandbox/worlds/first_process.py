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
from sandbox.protocol.launch_plan import ForkOrder, JoinedJail, LaunchPlan
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.rank_wire import RankEnds
from sandbox.worlds.world_folder import WorldFolder
from sandbox.worlds.world_spec import WorldSpec

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

    def __init__(self, born: socket.socket, builder: "subprocess.Popen[bytes] | None") -> None:
        """born: says the process id, and hands over a handle; builder: bubblewrap around a process that does nothing."""
        self._born = born
        self._builder = builder
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
        if self._builder is not None:  # with its namespace goes everything that is in it
            gone = kill_tree(self._builder.pid)
            if self._builder.stdin is not None:
                self._builder.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._builder.wait(timeout=0.2)
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
    spec: WorldSpec,
    ends: Sequence[RankEnds],
    status: int,
    bound: Bound,
    folder: WorldFolder,
    servers: ForkServers,
) -> FirstProcess:
    """Starts a world's launcher within its bound. ends, status: descriptors that it inherits; the caller closes its own copies.

    Raises OSError where this machine has no process, descriptor or memory left.
    """
    profile, kind = spec.jail.profile, spec.kind
    plan = LaunchPlan(
        ranks=spec.ranks,
        trusted=spec.trusted,
        device_module=kind.rank_module,
        folder=str(profile.inside(folder.path)),
        cores=[cores_of(rank, spec.ranks, spec.gpus) for rank in range(spec.ranks)],
        sockets=[end.sock for end in ends],
        reports=[end.report for end in ends],
        pipes=[end.pipe for end in ends],
        status=status,
    )
    program = spec.jail.filter
    if profile.forks and (program is None or not joining.why_not(profile, program)):
        return _forked(spec, plan, bound, folder, servers)
    argv = python_module("sandbox.rank.launcher", launch_plan.encode(plan).decode())
    passed = [*plan.sockets, *plan.reports, *plan.pipes, plan.status]
    with _wrapped(spec, argv, folder.path) as wrapped:
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
    spec: WorldSpec, plan: LaunchPlan, bound: Bound, folder: WorldFolder, servers: ForkServers
) -> Forked:
    """Has walls built around a process that does nothing, if there are walls, and orders the world."""
    server = servers.of(spec.kind)
    with contextlib.ExitStack() as afterwards, contextlib.ExitStack() as undo:
        wrapped = afterwards.enter_context(_wrapped(spec, list(joining.HOLD), folder.path))
        born, theirs = socket.socketpair()
        undo.callback(born.close)
        afterwards.callback(theirs.close)
        fds = [*plan.sockets, *plan.reports, *plan.pipes, plan.status, theirs.fileno()]
        builder: subprocess.Popen[bytes] | None = None
        joined: JoinedJail | None = None
        if spec.jail.filter is not None:
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
            joined = JoinedJail(builder.pid, fds.index(builder.stdout.fileno()), spec.jail.filter)
        order = ForkOrder(
            plan=_by_places(plan, fds),
            environment=wrapped.env,
            folder=plan.folder,
            group=str(bound.group.path) if bound.group else "",
            born=fds.index(theirs.fileno()),
            jail=joined,
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
def _wrapped(spec: WorldSpec, argv: list[str], folder: Path) -> Iterator[Wrapped]:
    """A command behind the walls of a world. The baseline's, too: what they cost must cost all worlds the same."""
    kind = spec.kind
    extra = {"PYTHONPATH": python_path()} | kind.environment(spec.gpus)
    readable = spec.readable
    if spec.jail.name == "none":
        cache = kernel_cache.prepared()
    else:
        cache = folder / SHOWN
        cache.mkdir(mode=0o755)
        readable = (*readable, cache)
    if cache is not None:
        extra["PKB_KERNEL_CACHE"] = str(cache)
    wrapped = spec.jail.wrap(argv, folder, extra, readable, kind.device_files(spec.gpus))
    try:
        yield wrapped
    finally:
        wrapped.close()
