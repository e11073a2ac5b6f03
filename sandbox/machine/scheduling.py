"""Scheduling of a CPU rank's threads: those that poll get the lowest priority. Host side: no torch.

gloo's loop thread, when it finds the lock of a connection taken, tries again at once for as long as its turn on the core lasts:
for up to 4 ms in which the thread that holds the lock waits for that core. Where Linux schedules sessions as groups this
happened in every third batch on two cores (calls of 2 to 6 ms among those of 0.8), without groups hardly ever.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

POLLING = "gloo_tcp_loop"


def sessions_are_groups(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> bool:
    """Whether Linux shares the cores between sessions first (autogroup), not between all threads.

    Every world has a session of its own, so a thread of low priority gives way to that world alone. Otherwise it would give way
    to all other work on the machine, too. A control group for cores overrides the sessions.
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
    # In a container the path is "/", too; but only a group below the root has a weight.
    return not (cgroups / "cpu.weight").exists()


def polling_gives_way(pids: Iterable[int]) -> None:
    """The polling threads of these processes run only when none of their session's other threads wants to."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    if (task / "comm").read_text().strip() == POLLING:
                        os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
