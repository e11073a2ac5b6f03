"""Stopping every process of a world and letting them go on, and what they did though they were stopped.

By a control group where the world has one: the kernel stops all of it in one call, and no signal continues it. Elsewhere by
SIGSTOP; the ways to a SIGCONT that no running process sends are refused by the system-call filter (sandbox/jail/seccomp.py).
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandbox.jail.cgroup import Group
from sandbox.machine import processes

STOP_SECONDS = 2.0
"""Until everything has stopped that was told to: a busy machine may keep a thread from its core so long."""
PROCESSES, PROCESSES_PER_RANK = 128, 64
"""A world that is stopped by signals may have so many processes while it is timed, ended ones included: reading the list of
them takes tens of microseconds each."""


class CannotStop(Exception):
    """Processes of a world go on, or are too many to be stopped. The message says which."""


@dataclass(frozen=True)
class Activity:
    """What stopped processes had done at a moment."""

    cpu_seconds: float
    pids: frozenset[int] = field(default_factory=frozenset)
    """The processes that are there; empty where the kernel itself keeps all of a world stopped, newcomers included."""


class Stopping(Protocol):
    """A way to stop a world."""

    def halt(self) -> None:
        """Stops everything that is known, at once; returns before it has stopped."""

    def complete(self) -> bool:
        """Stops what has been started meanwhile, too. Returns whether something was still running."""

    def await_stopped(self) -> None:
        """Waits until everything has stopped. Raises CannotStop."""

    def activity(self) -> Activity:
        """What the world has done so far."""

    def go_on(self, held: Collection[int] = ()) -> None:
        """Lets everything go on that was stopped, except these processes."""


class ByGroup:
    """See Stopping."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def halt(self) -> None:
        self._group.freeze()

    def complete(self) -> bool:
        """Nothing is left to do: what a frozen process was starting is born frozen."""
        return False

    def await_stopped(self) -> None:
        if not _within(STOP_SECONDS, lambda: self._group.frozen):
            raise CannotStop(f"not all of its processes stopped within {STOP_SECONDS:.0f} s")

    def activity(self) -> Activity:
        return Activity(self._group.cpu_seconds())

    def go_on(self, held: Collection[int] = ()) -> None:
        processes.pause(held)  # each stops before it runs again
        self._group.thaw()


class BySignals:
    """See Stopping."""

    def __init__(self, tree: Callable[[], list[int]], ranks: Callable[[], list[int]], kernel: bool) -> None:
        """tree(): all processes of the world; ranks(): the ranks' ids, none while they start; kernel: whether others than those
        may run."""
        self._tree = tree
        self._ranks = ranks
        self._kernel = kernel
        self._known: list[int] = []
        """Processes that there were when it was stopped last, the ranks first."""

    def halt(self) -> None:
        self._known = self._ranks_first(self._known)
        processes.pause(self._known)

    def complete(self) -> bool:
        """Also one that was forked meanwhile. The known ones were stopped first: reading the tree takes milliseconds."""
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
            raise CannotStop(
                f"it keeps {len(self._known)} processes; {most} may be there while something is timed"
            )
        if not _within(STOP_SECONDS, lambda: all(processes.state(pid) in "TtZXD" for pid in self._known)):
            raise CannotStop(f"not all of its processes stopped within {STOP_SECONDS:.0f} s")

    def activity(self) -> Activity:
        pids = self._tree() if self._kernel else self._known
        return Activity(processes.cpu_seconds(pids), frozenset(pids))

    def go_on(self, held: Collection[int] = ()) -> None:
        processes.resume(pid for pid in self._known if pid not in held)

    def _ranks_first(self, pids: Sequence[int]) -> list[int]:
        """All ranks, and these processes."""
        ranks = self._ranks()
        return ranks + [pid for pid in pids if pid not in ranks]


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(50e-6)
    return True
