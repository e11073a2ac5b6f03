"""The first process of a world: a separate program, or a process that the fork server forks into a jail."""

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.jail import joining
from sandbox.jail.choice import Jail
from sandbox.jail.memory import Bound
from sandbox.jail.profiles import Wrapped, python_module, python_path
from sandbox.machine import kernel_cache
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.locked_folder import LockedFolder
from sandbox.machine.placement import RankGpu, cores_of
from sandbox.machine.processes import kill_tree, tree
from sandbox.protocol import launch_plan
from sandbox.protocol.launch_plan import ForkOrder, JoinedJail, LaunchPlan
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.rank_wire import RankEnds


@dataclass(frozen=True)
class WorldSpec:
    """The sizes, devices and limits that a world starts with."""

    ranks: int
    kind: DeviceKind
    trusted: bool
    """Whether the referee decodes the replies of its ranks. True only for the oracle world."""
    jail: Jail
    readable: tuple[Path, ...] = ()
    """The folder of a user's own problem."""
    gpus: tuple[RankGpu, ...] = ()
    """By rank; empty for CPU ranks."""
    kernel: bool = True
    """Whether a kernel runs in it. The kernel then counts as the cause of the world's failures."""


SHOWN = "compiled"
"""The subfolder of a world's folder with the cached compiled code of its kernel."""
FILES = "kernel"
"""The subfolder with the files of a kernel that has several files."""
BORN_SECONDS = 15.0
"""Limit until a new fork server, which imports torch, has forked its first world."""


class FirstProcess:
    """A world's first process and all its descendants: a program in a jail, or what the fork server forks into one."""

    def __init__(self, program: "subprocess.Popen[bytes] | None", born: socket.socket | None = None) -> None:
        """born: a socket that delivers the process id of a forked process with a pidfd; None: `program` is the first process.

        program: else bubblewrap around a process that does nothing.
        """
        self._program = program
        self._born = born
        self._pid = program.pid if program is not None and born is None else 0
        self._handle: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether it has been started yet."""
        return self._found(0.0)

    def tree(self) -> list[int]:
        """The process ids, once it has been started; empty if there is no process.

        The first process comes first. The ranks come last while only the harness runs in the world.
        """
        return tree(self._pid) if self._found(BORN_SECONDS) else []

    def kill(self) -> bool:
        """Kills all of them. Returns whether they are gone. A world that is forked later finds no jail and ends by itself."""
        gone = True
        if self._program is not None:  # the end of its PID namespace kills all processes in it
            gone = kill_tree(self._program.pid)
            if self._program.stdin is not None:
                self._program.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._program.wait(timeout=0.2)
        if self._born is not None:
            if self._found(0.0):
                gone = kill_tree(self._pid) and gone
            self._born.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        return gone

    def _found(self, seconds: float) -> bool:
        """Whether the process runs, or is forked within these seconds. The pidfd shows its end, because ids are reused."""
        if self._born is None:
            return True
        if self._handle is None and self._born.fileno() >= 0 and _is_readable(self._born.fileno(), seconds):
            said, handles, _, _ = socket.recv_fds(self._born, 32, 1)
            self._born.close()
            if handles:
                self._pid, self._handle = int(said), handles[0]
        return self._handle is not None and not _is_readable(self._handle, 0.0)


def _is_readable(fd: int, seconds: float) -> bool:
    """Whether a descriptor becomes readable or closed within these seconds; for a pidfd: whether the process has ended."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def start(
    spec: WorldSpec, ends: Sequence[RankEnds], status: int, bound: Bound, folder: LockedFolder, servers: ForkServers
) -> FirstProcess:
    """Starts a world's launcher within its memory limit.

    ends, status: descriptors that it inherits; the caller closes its own copies.

    Raises OSError if this machine has no process, descriptor or memory left.
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
    program = spec.jail.filter or b""
    if profile.name == "none" or (profile.forks and not joining.why_not(profile, program)):
        return _forked(spec, plan, bound, folder, servers)
    argv = python_module("sandbox.rank.launcher", launch_plan.encode(plan).decode())
    passed = [*plan.sockets, *plan.reports, *plan.pipes, plan.status]
    with wrapped_for(spec, argv, folder.path) as wrapped:
        out = plan.pipes[0]
        return FirstProcess(started(bound, wrapped, folder.path, subprocess.DEVNULL, out, out, passed))


def _forked(
    spec: WorldSpec, plan: LaunchPlan, bound: Bound, folder: LockedFolder, servers: ForkServers
) -> FirstProcess:
    """Builds a jail around a process that does nothing, if the profile has one, and orders the fork of the world."""
    server = servers.of(spec.kind)
    with contextlib.ExitStack() as afterwards, contextlib.ExitStack() as undo:
        wrapped = afterwards.enter_context(wrapped_for(spec, list(joining.HOLD), folder.path))
        born, theirs = socket.socketpair()
        undo.callback(born.close)
        afterwards.callback(theirs.close)
        fds = [*plan.sockets, *plan.reports, *plan.pipes, plan.status, theirs.fileno()]
        builder: subprocess.Popen[bytes] | None = None
        joined: JoinedJail | None = None
        if spec.jail.name != "none":
            builder = started(bound, wrapped, folder.path, subprocess.PIPE, subprocess.PIPE, plan.pipes[0])
            undo.callback(kill_tree, builder.pid)
            assert builder.stdout is not None
            afterwards.callback(builder.stdout.close)
            fds.append(builder.stdout.fileno())
            joined = JoinedJail(builder.pid, builder.stdout.fileno())
        order = ForkOrder(
            plan=plan,
            environment=wrapped.env,
            group=str(bound.group.path) if bound.group else "",
            born=theirs.fileno(),
            filter=spec.jail.filter or b"",
            jail=joined,
        )
        server.fork(order, fds)
        undo.pop_all()
    return FirstProcess(builder, born)


def started(
    bound: Bound, wrapped: Wrapped, folder: Path, stdin: int, stdout: int, stderr: int, fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Starts a command in its jail and within its memory limit, with its own session. fds: it inherits them, too."""
    return subprocess.Popen(
        bound.starts(wrapped.argv),
        pass_fds=[*fds, *wrapped.fds],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=wrapped.env,
        cwd=folder,
        start_new_session=True,
    )


@contextlib.contextmanager
def wrapped_for(spec: WorldSpec, argv: list[str], folder: Path) -> Iterator[Wrapped]:
    """Wraps the command in the world's jail. Worlds without a kernel get one, too, so that all have the same cost."""
    kind = spec.kind
    extra = {"PYTHONPATH": python_path()} | kind.environment(spec.gpus)
    readable = spec.readable
    if spec.jail.name == "none":
        cache = kernel_cache.prepared()
    else:
        cache, files = folder / SHOWN, folder / FILES
        for shown in (cache, files):
            shown.mkdir(mode=0o755)
        readable = (*readable, cache, files)
    if cache is not None:
        extra["PKB_KERNEL_CACHE"] = str(cache)
    jail, devices = spec.jail, kind.device_files(spec.gpus)
    wrapped = jail.profile.wrap(argv, folder, extra, readable, jail.filter_fd(), devices)
    try:
        yield wrapped
    finally:
        wrapped.close()
