"""How a kernel may disturb the other side, and how other programs disturb both.

A kernel: activity of its processes while they are stopped, and changed priorities. Other programs: ranks that wait for a core.
"""

import os
from collections.abc import Callable, Sequence

from sandbox.machine import processes
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.scheduling import Share
from sandbox.worlds.deadlines import TimeSource
from sandbox.worlds.stopping import Activity
from sandbox.worlds.world import World

STOPPED_SECONDS, STOPPED_SHARE = 200e-6, 0.02
"""CPU time that stopping itself takes in one stop: seconds, and share of the stop."""
FREED_A_SECOND, HELD_BY_A_CORE = 6 << 30, 1 << 20
"""Bytes that a thread of the operating system frees in a second (measured: 256 MiB in 40 ms), and those that each core may give
back of what it holds for a control group."""
DISTURBED, DISTURBED_SHARE = 2, 0.1
"""Number and share of stops with more CPU time above which there is a fault."""
WAITED_FROM = 0.3
"""Share of the cores that other programs use from which waits for a core count."""
MOST_SESSIONS = 2
"""Sessions that processes other than the ranks may begin during timing. Each gets the lowest priority."""


class StoppedActivity:
    """The activity of one kernel in all stops of a run. It is zero unless something continued one of its processes."""

    def __init__(self) -> None:
        self.count = 0
        self.disturbed = 0
        self.cpu_seconds = 0.0
        """CPU time in disturbed stops."""
        self.processes = 0
        """Processes started in disturbed stops."""

    def note(self, before: Activity, after: Activity, seconds: float) -> None:
        """Adds a stop of this many seconds, from the activity at its beginning and end."""
        freed = before.memory - after.memory - HELD_BY_A_CORE * (os.cpu_count() or 1)
        used = after.cpu_seconds - before.cpu_seconds + max(freed, 0) / FREED_A_SECOND
        started = len(after.pids - before.pids)
        self.count += 1
        if started or used > max(STOPPED_SECONDS, STOPPED_SHARE * seconds):
            self.disturbed += 1
            self.cpu_seconds += max(used, 0.0)
            self.processes += started

    @property
    def is_fault(self) -> bool:
        """Whether so many stops are disturbed that chance does not explain them."""
        return self.disturbed > max(DISTURBED, DISTURBED_SHARE * self.count)

    def fault(self, other: str) -> str:
        """The fault in one line; empty if there is none. other: the side that was timed meanwhile."""
        if not self.is_fault:
            return ""
        started = f" and started {self.processes} processes" if self.processes else ""
        return (
            f"the kernel's processes or packets used {self.cpu_seconds:.3g} s of CPU time{started} while they were stopped, "
            f"in {self.disturbed} of {self.count} stops, while the {other} was timed or inputs were completed"
        )


def waits(sides: Sequence[Sequence[World]], timer: TimeSource) -> Callable[[float], tuple[float, float]]:
    """Begins to count how long the ranks of both sides wait for a core, if other programs use the cores.

    Such a machine shows how code gets on with the scheduler: kernels that spin were told to be 50 times
    as fast as a baseline that sleeps, or a tenth as fast, by which of their batches were preempted.

    sides: the worlds of (the baseline's, the contender's) side. Returns a function that gives for each side the share of the time
    in which its ranks were not stopped, above 1 if several threads wait; zeros if others use less than this share of the cores.
    """

    def now() -> list[float]:
        """Seconds: used by other programs, the time, then for each side: waited by its ranks, and run by them."""
        found = [processes.outside_seconds(), timer.monotonic()]
        for side in sides:
            waited = sum(world.processes.waited_for_cores() for world in side)
            found += waited, sum(world.ranks * world.processes.ran_s for world in side)
        return found

    def shares(least: float) -> tuple[float, float]:
        used, lasted, *waited = (after - earlier for earlier, after in zip(before, now(), strict=True))
        if not processes.too_busy(used, lasted, least):
            return 0.0, 0.0
        return waited[0] / max(waited[1], 1e-9), waited[2] / max(waited[3], 1e-9)

    before = now()
    return shares


class Priorities:
    """The priorities of one kernel's processes, from the first check on.

    A kernel that raised its own would gain wherever other programs use the cores.
    """

    def __init__(self, kind: DeviceKind) -> None:
        self._kind = kind
        self._ranks: dict[int, Share] = {}
        """Priority of each rank's process at the first check."""
        self._settled: set[str] = set()
        """Sessions of other processes, with the nice values that they were given."""
        self._begun = 0
        """Sessions that began after the first check."""

    def check(self, world: World) -> str:
        """The fault of a world in one line; empty if there is none. The first check stores the priorities."""
        helpers = world.processes.helpers()
        if not self._ranks:
            self._ranks = {pid: self._kind.share_of_cores(pid) for pid in world.processes.rank_pids}
            self._settle(helpers)
            if len({share.session for share in self._ranks.values()}) > 1:
                return "a rank of the kernel began a session of its own: all ranks share one"
            return ""
        for pid, before in self._ranks.items():
            now = self._kind.share_of_cores(pid)
            if now.session and now != before:
                return f"the kernel changed the priority of its process during timing: from {before} to {now}"
        self._begun += self._settle(helpers)
        if self._begun <= MOST_SESSIONS:
            return ""
        return f"the kernel's processes began {self._begun} sessions during timing; at most {MOST_SESSIONS} are allowed"

    def _settle(self, helpers: Sequence[int]) -> int:
        """Gives new sessions the lowest priority; returns their number."""
        found = 0
        for pid in helpers:
            session = self._kind.share_of_cores(pid).session
            if session and session not in self._settled | {share.session for share in self._ranks.values()}:
                found += 1
                self._kind.settle_helper(pid)
                self._settled.add(self._kind.share_of_cores(pid).session)
        return found
