"""Finds, stops and kills all processes of a world, and finds what other programs and the shell leave it (Linux).

A kernel cannot choose the load of other programs: its processes descend from the arena's, and only others' CPU time counts.
"""

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_CPUCLOCK_SCHED = 2
"""The CPU clock among the clocks of a process, in the clock id made from its process id: clock_getcpuclockid(3)."""
_PACKET_SECONDS = 5e-6  # on loopback (measured: 7 us with its timer)
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int = 0, number: int = signal.SIGKILL) -> None:
    """Makes the kernel kill this process when its parent ends. number: the signal.

    parent: its process id if known. This process ends at once if the parent has already ended.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)


def forked(work: Callable[[], object], status: int = 0) -> int:
    """Forks a child that does this work, exits with the status, and ends with this process. Returns its id."""
    parent = os.getpid()
    if not (child := os.fork()):
        die_with_parent(parent)
        work()
        os._exit(status)
    return child


def adopt_orphans() -> None:
    """Makes orphaned descendants children of this process, so that it can find and reap them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hide_from_ptrace() -> None:
    """Hides this process's memory and environment from other processes of the user."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def children(pid: int) -> list[int]:
    """The children of all threads of a process; empty if it has ended."""
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


def send(pids: Iterable[int], number: int) -> None:
    """Sends a signal to processes, as far as they exist and this process may."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def pause(pids: Iterable[int]) -> None:
    """Stops processes."""
    send(pids, signal.SIGSTOP)


def resume(pids: Iterable[int]) -> None:
    """Continues stopped processes."""
    send(pids, signal.SIGCONT)


def pin(pid: int, cores: Iterable[int]) -> None:
    """Restricts the first thread of a process, and threads that it starts later, to these cores."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, cores)


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of all threads of these processes, with nanosecond resolution."""
    seconds = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            seconds += time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return seconds


def packet_seconds(pid: int) -> float:
    """CPU time of the operating system for the packets in a process's network so far; no process is charged for it."""
    with contextlib.suppress(OSError):
        interfaces = Path(f"/proc/{pid}/net/dev").read_text().split(":")[1:]
        return _PACKET_SECONDS * sum(int(each.split()[1]) for each in interfaces)
    return 0.0


def cpu_seconds_of_all(pids: Iterable[int]) -> float:
    """CPU time of these processes and their reaped children, with a resolution of 10 ms."""
    return sum(sum(found[1:]) for pid in pids if (found := ticks(pid))) / os.sysconf("SC_CLK_TCK")


def waits_for_cores(pids: Callable[[], Iterable[int]]) -> Callable[[], float]:
    """A function that returns for how long threads of processes were runnable without a core: seconds, since its first call.

    The times of all threads are added, because the first thread sleeps while it waits for another one. Linux counts a wait when
    it ends. A wait that goes on counts from the first call in it. pids(): the processes. 0 if the system does not count
    (/proc/PID/schedstat).
    """
    total = 0.0
    threads: dict[str, tuple[str, float, float]] = {}
    """By thread: its CPU time while it was runnable, when it was first seen with it, and the seconds of its waits."""

    def seconds() -> float:
        nonlocal total, threads
        now, before, threads = time.monotonic(), threads, {}
        for thread in (task for pid in pids() for task in Path(f"/proc/{pid}/task").glob("*")):
            with contextlib.suppress(OSError, ValueError):
                used, ended, _ = (thread / "schedstat").read_text().split()
                waited = int(ended) / 1e9
                used_before, since, counted = before.get(thread.name, ("", now, waited))
                runnable = _state(thread) == "R"
                if not runnable or used != used_before:
                    since = now
                waited += now - since
                total += max(0.0, waited - counted)
                threads[thread.name] = used if runnable else "", since, waited
        return total

    return seconds


def user_ids() -> set[int]:
    """The users of all processes that this process can see."""
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    found.add(entry.stat().st_uid)
    return found


def threads(pids: Iterable[int]) -> int:
    """The number of threads of these processes."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/task"))
    return count


KILL_SECONDS = 5.0


def kill_tree(pid: int) -> bool:
    """Kills a process and all its descendants. Returns whether they are gone within KILL_SECONDS.

    It stops descendants first, so that a fork bomb cannot outrun it. It finds orphans if this process called `adopt_orphans`.
    """
    deadline = time.monotonic() + KILL_SECONDS
    killed: set[int] = set()
    while True:
        pause([pid])
        pause(pids := tree(pid))
        send(reversed(tree(pid)), signal.SIGKILL)
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
    """Whether a process exists and is not a zombie."""
    return state(pid) not in "ZX"


def has_threads(pid: int) -> bool:
    """Whether any thread of a process is alive; its first thread may have ended."""
    return threads([pid]) > 1 or runs(pid)


def state(pid: int) -> str:
    """The state letter of a process's first thread (proc(5)); X if it is gone."""
    return _state(Path(f"/proc/{pid}"))


def is_runnable(pid: int) -> bool:
    """Whether a thread of a process runs, or waits for a core."""
    return any(_state(task) == "R" for task in Path(f"/proc/{pid}/task").glob("*"))


def _state(folder: Path) -> str:
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


TOO_BUSY, IMPOSSIBLE = 0.7, 1.2
"""Share of the cores that other programs use on a machine that is too busy, and share that no program can use."""
LEAST_SECONDS = 1.0
"""Shortest time over which the share is known well enough."""


_outside: dict[int | None, tuple[float, dict[int, tuple[int, int, int]]]] = {}
"""By arena: what `outside_seconds` returned last, and what `ticks` returned then of each process."""


def outside_seconds(arena: int | None = None) -> float:
    """CPU seconds of all processes outside the arena so far; of ended ones, what their parents collected or earlier calls saw.

    Takes milliseconds. arena: the process whose descendants are the arena's; by default the one that started this process.
    """
    pids = map(int, filter(str.isdigit, os.listdir("/proc")))
    now = {pid: found for pid in pids if (found := ticks(pid)) is not None}
    inside = now.keys() & {os.getppid() if arena is None else arena}
    while inside:  # the arena's process, its children, theirs, and so on
        now = {pid: found for pid, found in now.items() if pid not in inside}
        inside = {pid for pid, (parent, *_) in now.items() if parent in inside}
    total, before = _outside.get(arena, (0.0, {}))
    seen: Counter[int] = Counter()
    """By process that is alive: what earlier calls saw of those that ended below it."""
    for pid in before.keys() - now.keys():
        parent = pid
        while parent in before and parent not in now:
            parent = before[parent][0]
        seen[parent] += sum(before[pid][1:])
    for pid, (_, own, collected) in now.items():
        _, own_before, collected_before = before.get(pid, (0, 0, 0))
        used = max(0, own - own_before) + max(0, collected - collected_before - seen[pid])
        total += used / os.sysconf("SC_CLK_TCK")
    _outside[arena] = total, now
    return total


def ticks(pid: int) -> tuple[int, int, int] | None:
    """(its parent, clock ticks of CPU time that it used, and that its collected children used); None if it does not exist."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        fields = file.read(1024).rpartition(b")")[2].split(None, 15)
        return int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return None


def too_busy(used: float, seconds: float, least: float = TOO_BUSY) -> bool:
    """Whether other programs use so much of the cores that processes of the arena wait for them.

    used: their CPU seconds within these seconds. least: the smallest such share of the cores.
    """
    share = used / max(seconds, 1e-9) / len(os.sched_getaffinity(0))
    return seconds >= LEAST_SECONDS and least <= share <= IMPOSSIBLE


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


_LEAST = {"AS": 2 << 30, "DATA": 2 << 30, "STACK": 1 << 20, "FSIZE": 1 << 30, "NOFILE": 256, "NPROC": 256}
"""Limits of a process (setrlimit(2)) with which two ranks hardly fail."""


def low_limits() -> str:
    """What to do about limits of this process that are lower than ranks need; empty if none is."""
    found = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in _LEAST}
    low = [f"{name} is {value}" for name, value in found.items() if 0 <= value < _LEAST[name]]
    return f"Start pkb-arena in a shell with higher limits (ulimit): {', '.join(low)}." if low else ""
