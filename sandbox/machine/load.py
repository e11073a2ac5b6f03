"""Whether the programs outside the arena leave too little of this machine's cores to judge a kernel.

A kernel cannot choose this: its processes descend from the arena's, and only the CPU time of other processes counts.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from sandbox.machine.processes import cpu_seconds_of_all, tree

TOO_BUSY, IMPOSSIBLE = 0.7, 1.2
"""Share of the cores that other programs use on a machine that is too busy, and share that no program can use."""
LEAST_SECONDS = 1.0
"""Shortest time over which the share is known well enough."""


def outside_seconds(arena: int | None = None) -> float:
    """CPU seconds of all processes outside the arena so far, with a resolution of 10 ms. Takes milliseconds.

    arena: the process whose descendants are the arena's; by default the one that started this process.
    """
    every = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")}
    return cpu_seconds_of_all(every.difference(tree(os.getppid() if arena is None else arena)))


def too_busy(used: float, seconds: float) -> bool:
    """Whether other programs use so much of the cores that processes of the arena wait for them.

    used: their CPU seconds within these seconds.
    """
    share = used / max(seconds, 1e-9) / len(os.sched_getaffinity(0))
    return seconds >= LEAST_SECONDS and TOO_BUSY <= share <= IMPOSSIBLE


def give_way(pids: Iterable[int]) -> bool:
    """Whether one of these processes has chosen a lower priority than this process, so that its waits are its own choice."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in pids:
        try:
            if os.sched_getscheduler(pid) == os.SCHED_IDLE or os.getpriority(os.PRIO_PROCESS, pid) > own:
                return True
        except OSError:
            continue
    return False
