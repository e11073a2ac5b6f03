"""Priorities of CPU ranks: short time slices, and polling threads that yield to the other threads of their world.

A thread that wakes up preempts another program if its slice is shorter. Else it may wait for the end of a tick of 4 ms, and
a call wakes up several threads. gloo's loop thread spins while another thread holds the lock of a connection. At the same
priority it could occupy the core that the other thread needs for a tick, too.
"""

import contextlib
import ctypes
import os
import platform
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

POLLING = "gloo_tcp_loop"
LOWEST = 19
"""The nice value of polling threads, and of sessions that a kernel's processes begin: each further session adds weight."""
SLICE_NS, POLLING_SLICE_NS = 100_000, 1_000_000
"""Time slices of the referee and of ranks, and of polling threads. Other programs have 1.4 ms and more (Linux 6.12)."""
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}.get(platform.machine(), -1)  # sched_setattr(2)
_RESET_ON_FORK = 1
_libc = ctypes.CDLL(None)

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


def settle_ranks(pids: Iterable[int]) -> None:
    """Gives the threads of these processes short slices, and their polling threads the lowest priority within their session.

    This thread gets one, too, because it stops batches of a millisecond while ranks spin on all cores; what it starts does not.
    """
    _schedule(0, SLICE_NS, flags=_RESET_ON_FORK)
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    polls = (task / "comm").read_text().strip() == POLLING
                    _schedule(int(task.name), POLLING_SLICE_NS if polls else SLICE_NS, LOWEST if polls else None)


def _schedule(thread: int, slice_ns: int, nice: int | None = None, flags: int = 0) -> None:
    """Sets the slice and the nice value (None: as it is) of a thread, and the usual policy. Older systems ignore the slice."""
    nice = os.getpriority(os.PRIO_PROCESS, thread) if nice is None else nice
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, flags, nice, 0, slice_ns, 0, 0)
    _libc.syscall(_SET_ATTRIBUTES, thread, attributes, 0)


def settle_session(pid: int) -> None:
    """Gives the session of this process the lowest weight.

    Linux lets users other than root write a nice value every 0.1 s; a refused write is repeated.
    """
    for _ in range(TRIES):
        with contextlib.suppress(BlockingIOError):
            with contextlib.suppress(PermissionError, FileNotFoundError, ProcessLookupError):
                Path(f"/proc/{pid}/autogroup").write_text(str(LOWEST))
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
