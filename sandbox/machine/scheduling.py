"""Priorities of CPU ranks: their polling threads yield to the other threads, and worlds yield to the referee.

gloo's loop thread spins while another thread holds the lock of a connection. For up to 4 ms it can occupy the core that
the other thread needs. If Linux schedules sessions as groups, this happened in every third batch on two cores: calls
took 2 to 6 ms instead of 0.8 ms.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

POLLING = "gloo_tcp_loop"
YIELDING = 10
"""The nice value of a world. The referee stops batches of a millisecond while ranks spin on all cores. At nice 0 it got a core
only after the batch in half of these tests; at 10 in one of twenty."""
LOWEST = 19
"""The nice value of sessions that a kernel's processes begin, because each further session adds weight."""

AGAIN_SECONDS, TRIES = 0.06, 4
"""Seconds between two writes of a nice value if the first was refused, and the most writes."""


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


def worlds_give_way(pids: Iterable[int], nice: int = YIELDING) -> None:
    """Gives the sessions of these processes less weight than the referee's. All worlds get the same, so none is favoured."""
    for pid in pids:
        if not share_of_cores(pid).session.endswith(f" nice {nice}"):
            _give_way(Path(f"/proc/{pid}/autogroup"), nice)


def _give_way(file: Path, nice: int) -> None:
    """Writes a nice value. Linux lets users other than root write one every 0.1 s; a refused write is repeated."""
    for _ in range(TRIES):
        with contextlib.suppress(BlockingIOError):
            with contextlib.suppress(PermissionError, FileNotFoundError, ProcessLookupError):
                file.write_text(str(nice))
            return
        time.sleep(AGAIN_SECONDS)


class Share(NamedTuple):
    """The values that decide how much of the cores a process gets."""

    session: str = ""
    """The group of its session with its nice value, such as "/autogroup-7 nice 10"; empty if it has ended."""
    policy: int = 0
    """The policy of its first thread, as in `os.sched_getscheduler`."""
    nice: int = 0
    """The nice value of its first thread."""

    def __str__(self) -> str:
        return f"{self.session.lstrip('/')}, policy {self.policy}, nice {self.nice}"


def share_of_cores(pid: int) -> Share:
    """The share of a process; empty if it has ended. Takes tens of microseconds."""
    try:
        session = Path(f"/proc/{pid}/autogroup").read_text().strip()
        return Share(session, os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid))
    except OSError:
        return Share()
