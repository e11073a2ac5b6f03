"""Finding, freezing and killing every process of a world (Linux)."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_CPUCLOCK_SCHED = 2
"""Which of a process's clocks, in the id that the C library makes of its number: clock_getcpuclockid(3)."""
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int = 0) -> None:
    """The kernel kills this process when its parent's spawning thread ends.

    parent: its process id, where that is known: should it be gone already, this process ends here.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Orphaned descendants become this process's children, so that they can be found and reaped."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hide_from_ptrace() -> None:
    """Other processes of the same user can no longer read this one's memory or environment."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Direct children of a process, over all its threads; empty when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found, frontier = [pid], [pid]
    while frontier:
        frontier = [child for parent in frontier for child in children(parent) if child not in found]
        found += frontier
    return found


def signal_tree(pid: int, number: int) -> list[int]:
    """Sends a signal to a process and all its descendants; returns the processes that were there."""
    pids = tree(pid)
    for target in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target, number)
    return pids


def pause(pids: Iterable[int]) -> None:
    """Stops processes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)


def resume(pids: Iterable[int]) -> None:
    """Lets stopped processes go on."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def pin(pid: int, cores: Iterable[int]) -> None:
    """The first thread of a process runs on these cores alone, and so do threads that it starts from now on; others stay."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, cores)


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; without one it would die of it."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time that these processes have used so far in all their threads, to the nanosecond."""
    seconds = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            seconds += time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return seconds


def cpu_seconds_of_all(pids: Iterable[int]) -> float:
    """CPU time of these processes and of children of theirs that have ended and were waited for; ticks of 10 ms."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def waited_for_cores(pids: Iterable[int]) -> float:
    """Seconds for which the first threads of these processes were ready to run and had no core: of the one that had it worst.

    0 where the system does not count them (/proc/PID/schedstat).
    """
    seconds = [0.0]
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            seconds.append(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9)
    return max(seconds)


def threads(pids: Iterable[int]) -> int:
    """How many threads these processes have, the first one of each included."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/task"))
    return count


KILL_SECONDS = 5.0


def kill_tree(pid: int) -> bool:
    """Kills a process and everything it started; True when all are gone within KILL_SECONDS.

    Descendants are stopped first, so that a fork bomb cannot outrun the walk. Orphans land with this process when it
    called `adopt_orphans`.
    """
    deadline = time.monotonic() + KILL_SECONDS
    killed: set[int] = set()
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)
        pids = signal_tree(pid, signal.SIGSTOP)
        for target in reversed(tree(pid)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        killed.update(pids)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        alive = [p for p in killed if runs(p)]
        if not alive:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended; one that nobody has waited for yet has."""
    return state(pid) not in "ZX"


def has_threads(pid: int) -> bool:
    """Whether a thread of a process runs or can run: its first thread may have ended before the others."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return len(threads) > 1 or runs(pid)


def state(pid: int) -> str:
    """The letter of a process's state, its first thread's (proc(5)); X when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"
