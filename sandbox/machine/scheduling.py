"""Priorities of CPU ranks: their polling threads yield to the other threads, and worlds yield to the referee.

gloo's loop thread spins while another thread holds the lock of a connection, for up to 4 ms, in which that thread may lack
this core. If Linux schedules sessions as groups, this happened in every third batch on two cores: calls of 2 to 6 ms instead of
0.8 ms.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

POLLING = "gloo_tcp_loop"
YIELDING = 10
"""The nice value of a world. The referee stops batches of a millisecond while ranks spin on all cores. At nice 0 it got a core
only after the batch in half of these tests; at 10 in one of twenty."""


def sessions_are_groups(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> bool:
    """Whether Linux shares the cores between sessions first (autogroup), not between all threads.

    Every world has its own session, so a thread of low priority yields to that world alone. Otherwise it would yield to all
    work on the machine. A control group for cores overrides sessions.
    """
    try:
        if (proc / "sys/kernel/sched_autogroup_enabled").read_text().strip() != "1":
            return False
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if path != "/" and (controllers == "" or "cpu" in controllers.split(",")):
                return False
    except (OSError, ValueError):
        return False
    # In a container the path is "/", too, but only a group below the root has a weight.
    return not (cgroups / "cpu.weight").exists()


def polling_gives_way(pids: Iterable[int]) -> None:
    """Gives the polling threads of these processes the lowest priority within their session."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    if (task / "comm").read_text().strip() == POLLING:
                        os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def worlds_give_way(pids: Iterable[int]) -> None:
    """Gives the sessions of these processes less weight than the referee's. All worlds get the same, so none is favoured."""
    for pid in pids:
        with contextlib.suppress(OSError):  # refused to others than root more than ten times a second
            Path(f"/proc/{pid}/autogroup").write_text(str(YIELDING))
