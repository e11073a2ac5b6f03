"""The processes of a world, which are stopped, checked and killed together."""

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from sandbox.jail import memory as bounds
from sandbox.machine import kernel_cache, processes
from sandbox.machine.locked_folder import WORLD, LockedFolder
from sandbox.protocol.kernel_files import Kernel, write_read_only
from sandbox.worlds.first_process import FILES, SHOWN, FirstProcess, WorldSpec, start
from sandbox.worlds.fork_server import ForkServers
from sandbox.worlds.rank_wire import RankEnds
from sandbox.worlds.stopping import Activity, ByGroup, BySignals, await_stopped

MEMORY_CHECK_SECONDS = 0.25
END_SECONDS = 2.0
"""Limit for a world to end itself."""


class WorldProcess:
    """The processes of one world, from their start until `close`."""

    def __init__(self, spec: WorldSpec, first: FirstProcess, bound: bounds.Bound, folder: LockedFolder) -> None:
        """bound: its memory limit. See `start`."""
        self._spec = spec
        self._first = first
        self._bound = bound
        self._folder = folder
        self.rank_pids: list[int] = []
        """The ranks' process ids as the referee sees them, after `find_ranks`."""
        self._own: list[int] = []
        """All processes of the world when `find_ranks` was called."""
        self._stopping: ByGroup | BySignals = (
            ByGroup(bound.group) if bound.group else BySignals(first.tree, lambda: self.rank_pids, spec.kernel)
        )
        self.paused = False
        """Whether `pause` or `halt` has stopped the processes."""
        self._since, self._ran_s = time.monotonic(), 0.0
        self._complete = False
        """Whether new processes have been stopped, too."""
        self._memory_checked = time.monotonic()
        self.waited_for_cores = processes.waits_for_cores(lambda: self.rank_pids)
        """Returns the seconds for which threads of the ranks were runnable without a core."""

    @classmethod
    def start(cls, spec: WorldSpec, ends: Sequence[RankEnds], status: int, servers: ForkServers) -> "WorldProcess":
        """Starts the launcher. ends, status: descriptors that it inherits; the caller closes its own copies.

        servers: fork the world if its jail allows it.

        Raises OSError if the machine is out of processes, descriptors or memory.
        """
        with contextlib.ExitStack() as undo:
            folder = LockedFolder(WORLD)
            undo.callback(folder.remove)
            kind = spec.kind
            limit = None if spec.trusted else bounds.limit_bytes(spec.ranks * kind.host_bytes)
            bound = bounds.Bound(spec.jail.profile, folder.path, limit)
            undo.callback(bound.close)
            first = start(spec, ends, status, bound, folder, servers)
            undo.pop_all()
        return cls(spec, first, bound, folder)

    def find_ranks(self) -> None:
        """Finds the ranks' process ids. Call it when all ranks are ready and no kernel runs yet."""
        self._own = self._first.tree()
        self.rank_pids = self._own[-self._spec.ranks :]

    # --- stopping and watching -------------------------------------------------------------------------------

    @property
    def ran_s(self) -> float:
        """Seconds since the start in which the processes were not stopped."""
        return self._ran_s + (not self.paused) * (time.monotonic() - self._since)

    def halt(self) -> None:
        """Tells all known processes to stop. `pause` stops new ones, too."""
        if not self.paused:
            self._ran_s = self.ran_s
            self.paused = True
            self._stopping.halt()
            self._complete = False

    def pause(self) -> bool:
        """Stops every process of the world. In a world without a kernel only the ranks run, so only they are stopped.

        Returns whether an unknown process was still running."""
        self.halt()
        if self._complete:
            return False
        self._complete = True
        return self._stopping.complete()

    def await_stopped(self, rank: int | None = None) -> None:
        """Waits until all processes have stopped, or only a rank. Raises CannotStop."""
        if rank is None:
            self._stopping.await_stopped()
        else:
            await_stopped([self.rank_pids[rank]])

    def helpers(self) -> list[int]:
        """The processes of the stopped world that the kernel has started."""
        return [pid for pid in self._stopping.pids() if pid not in self._own]

    def activity(self) -> Activity:
        """The activity of the stopped processes so far."""
        found, own_network = self._stopping.activity(), self._spec.jail.name != "none"
        packets = processes.packet_seconds(self.rank_pids[0]) if own_network else 0.0
        return replace(found, cpu_seconds=found.cpu_seconds + packets)

    def meter(self) -> Callable[[], float]:
        """A function that returns the CPU seconds that the processes of the last stop have used since this call."""
        return self._stopping.meter()

    def resume(self, held: Collection[int] = ()) -> None:
        """Continues stopped processes. held: ranks that stay stopped until `resume_rank`."""
        if self.paused:
            self.paused, self._since = False, time.monotonic()
            self._stopping.go_on([self.rank_pids[rank] for rank in held])

    def pause_rank(self, rank: int) -> None:
        """Stops a rank's process while the others run on, until `resume_rank`."""
        processes.pause([self.rank_pids[rank]])

    def resume_rank(self, rank: int) -> None:
        """Continues a rank that `resume` has held or `pause_rank` has stopped."""
        processes.resume([self.rank_pids[rank]])

    def pin(self, rank: int, cores: Sequence[int]) -> None:
        """Restricts the first thread of a rank, and threads that it starts later, to these cores."""
        processes.pin(self.rank_pids[rank], cores)

    def give_way(self) -> bool:
        """Whether a rank has chosen a lower priority, so that it waits longer for a core."""
        return processes.give_way(self.rank_pids)

    def print_stacks(self) -> None:
        """Continues all processes and makes those with a handler print their stacks."""
        self.resume()
        for pid in self._first.tree():
            processes.resume([pid])
            if processes.handles(pid, signal.SIGUSR1):
                processes.send([pid], signal.SIGUSR1)

    # --- memory and the end ----------------------------------------------------------------------------------

    def excess(self) -> str:
        """The excess over the memory limit, in one line; empty if there is none.

        The oracle world has no limit. A call within MEMORY_CHECK_SECONDS of the last check returns empty.
        """
        now = time.monotonic()
        if self._spec.trusted or now - self._memory_checked < MEMORY_CHECK_SECONDS or not self._first.is_there:
            return ""
        self._memory_checked = now
        return self._bound.excess(self._first.tree())

    def killed(self) -> str:
        """One line if the operating system has killed processes because memory ran out; else empty."""
        return self._bound.killed()

    def show_compiled(self, digest: str) -> None:
        """Gives the world the cached artefacts of the kernel that it will load, and those that all kernels share.

        digest: SHA-256 of the kernel.
        """
        if self._spec.jail.name != "none":
            for name in (digest, kernel_cache.SHARED):
                kernel_cache.show(name, self._folder.path / SHOWN)

    def show_files(self, kernel: Kernel) -> str:
        """Gives the world the files of its kernel, read-only. Returns their folder; empty for a kernel of one file.

        Raises:
            ValueError, OSError: as `write_read_only`.
        """
        if not kernel.files:
            return ""
        folder = self._folder.path / FILES
        folder.mkdir(exist_ok=True)
        write_read_only(folder, kernel)
        return str(folder)

    def keep_compiled(self, digest: str) -> None:
        """Copies artefacts that this world has compiled into the kernel cache. digest: SHA-256 of its kernel."""
        jail = self._spec.jail
        if not self._spec.trusted and jail.name != "none":
            kernel_cache.harvest(self._first.tree()[-1], jail.profile.inside(self._folder.path), digest)

    def close(self) -> bool:
        """Kills every process of the world and removes its folder. Returns whether all processes are gone."""
        self.resume()  # a world without a PID namespace ends itself, which stopped processes cannot do
        if self._spec.jail.profile.name == "nested":
            ask_to_end(self._first.tree)
        gone = self._first.kill()
        gone = self._bound.close() and gone
        self._folder.remove()
        return gone


def ask_to_end(tree: Callable[[], list[int]]) -> None:
    """Asks the first program of a world (sandbox/jail/inside.py) to end it, and waits until its known processes are gone.

    tree(): the world's processes, the first process first. Waits at most END_SECONDS.
    """
    seen = tree()
    for number in (signal.SIGTERM, signal.SIGCONT):
        processes.send(seen[:2], number)  # bubblewrap, and the first program
    until = time.monotonic() + END_SECONDS
    while any(processes.runs(process) for process in seen) and time.monotonic() < until:
        time.sleep(0.002)
