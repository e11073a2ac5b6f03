"""Stops and continues all processes of a world, and measures their activity.

A control group stops a world in one call, and no signal continues it. A world without one is stopped by SIGSTOP. Its
processes cannot arrange a later SIGCONT: the system-call filter refuses every call for that (sandbox/jail/seccomp.py).
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from sandbox.jail.cgroup import Group
from sandbox.machine import processes
from sandbox.worlds.failures import machine_too_busy

STOP_SECONDS = 10.0
"""Limit until all processes have stopped. A thread stops when it next gets a core, which takes seconds on a busy machine."""
OBSERVED_SHARE, ONLY_WAITING = 0.9, 0.05
"""Last share of that limit in which processes are observed that have not stopped, and most CPU seconds of one that only waits
for a core: it stops as soon as it gets one."""
PROCESSES, PROCESSES_PER_RANK = 128, 64
"""Most processes of a world that is stopped by signals, including ended ones. Reading each takes tens of microseconds."""


class CannotStop(Exception):
    """Processes of a world did not stop, or are too many. The message has the reason."""


@dataclass(frozen=True)
class Activity:
    """The activity of processes so far."""

    cpu_seconds: float
    pids: frozenset[int] = field(default_factory=frozenset)
    """The present processes; empty if a control group stops the world, because it also stops new ones."""
    memory: int = 0
    """Bytes of memory, where a control group counts them. The operating system's own threads free the files of lost sockets."""


class ByGroup:
    """Stops a world by its control group."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def halt(self) -> None:
        """Tells all known processes to stop; returns before they have stopped."""
        self._group.set_frozen(True)

    def complete(self) -> bool:
        """Stops new processes, too. Returns whether one was still running: none, because a frozen group freezes them."""
        return False

    def await_stopped(self) -> None:
        """Waits until everything has stopped. Raises CannotStop, or HarnessFailed if the rest only waited for a core."""
        _await_stopped(lambda: self._group.frozen, self._group.pids)

    def pids(self) -> Sequence[int]:
        """The processes of a stopped world."""
        return self._group.pids()

    def activity(self) -> Activity:
        """The activity of the world so far."""
        return Activity(self._group.cpu_seconds(), memory=self._group.memory())

    def meter(self) -> Callable[[], float]:
        """A function that returns the CPU seconds of the known processes since this call."""
        before = self._group.cpu_seconds()
        return lambda: self._group.cpu_seconds() - before

    def go_on(self, held: Collection[int] = ()) -> None:
        """Continues all stopped processes except these."""
        processes.pause(held)  # takes effect before they could run again
        self._group.set_frozen(False)


class BySignals:
    """Stops a world by SIGSTOP to each of its processes. Methods as those of `ByGroup`."""

    def __init__(self, tree: Callable[[], list[int]], ranks: Callable[[], list[int]], kernel: bool) -> None:
        """tree(): all processes of the world. ranks(): the ranks' ids; empty while they start. kernel: whether a kernel
        may run, which can start other processes."""
        self._tree = tree
        self._ranks = ranks
        self._kernel = kernel
        self._known: list[int] = []
        """Processes of the last stop, the ranks first."""

    def halt(self) -> None:
        self._known = self._ranks_first(self._known)
        processes.pause(self._known)

    def complete(self) -> bool:
        """Stops processes that were forked meanwhile. Reading the tree takes milliseconds, so known ones are stopped first."""
        if not self._kernel:
            return False
        stopped = set(self._known)
        found_running = False
        while new := set(found := self._tree()) - stopped:
            found_running |= any(map(processes.has_threads, new))
            processes.pause(new)
            stopped |= new
        self._known = self._ranks_first(found)
        return found_running

    def await_stopped(self) -> None:
        most = PROCESSES + PROCESSES_PER_RANK * len(self._ranks())
        if len(self._known) > most:
            raise CannotStop(f"it has {len(self._known)} processes; at most {most} are allowed during timing")
        await_stopped(self._known)

    def pids(self) -> Sequence[int]:
        return self._known

    def activity(self) -> Activity:
        pids = self._tree() if self._kernel else self._known
        return Activity(processes.cpu_seconds(pids), frozenset(pids))

    def meter(self) -> Callable[[], float]:
        known = self._known  # replaced as a whole by later stops
        before = processes.cpu_seconds(known)
        return lambda: processes.cpu_seconds(known) - before

    def go_on(self, held: Collection[int] = ()) -> None:
        processes.resume(pid for pid in self._known if pid not in held)

    def _ranks_first(self, pids: Sequence[int]) -> list[int]:
        """The ranks, then these processes."""
        ranks = self._ranks()
        return ranks + [pid for pid in pids if pid not in ranks]


def await_stopped(pids: Sequence[int]) -> None:
    """Waits until processes that got SIGSTOP have stopped. Raises as `ByGroup.await_stopped`."""

    def others() -> list[int]:
        return [pid for pid in pids if processes.state(pid) not in "TtZXD"]

    _await_stopped(lambda: not others(), others)


def _await_stopped(stopped: Callable[[], bool], others: Callable[[], Sequence[int]]) -> None:
    """Waits until `stopped`. others(): the processes that may still run."""
    if _within(STOP_SECONDS * (1 - OBSERVED_SHARE), stopped):
        return
    before = {pid: processes.cpu_seconds([pid]) for pid in others()}
    outside, since = processes.outside_seconds(), time.monotonic()
    if _within(STOP_SECONDS * OBSERVED_SHARE, stopped):
        return
    late = [pid for pid in others() if processes.is_runnable(pid)]
    waited = all(processes.cpu_seconds([pid]) - before.get(pid, 0.0) <= ONLY_WAITING for pid in late)
    used, seconds = processes.outside_seconds() - outside, time.monotonic() - since
    if late and waited and not processes.give_way(late) and processes.too_busy(used, seconds):
        raise machine_too_busy("a process waited for one, so it could not stop")
    raise CannotStop(f"not all of its processes stopped within {STOP_SECONDS:.0f} s")


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(50e-6)
    return True
