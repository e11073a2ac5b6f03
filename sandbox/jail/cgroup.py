"""A control group (v2) per world. It stops all processes at once, and limits memory where the controller is available.

A group with processes cannot divide its memory among children. The parent of the worlds' groups is the first of these:

1. The own group, if it is the root or divides its memory already.
2. The own group, if systemd has delegated it. Its processes are moved into a child.
3. A group above, if no group on the way up has a memory limit.
4. The own group without delegation.

Only ancestors and descendants of this process are moved.
"""

import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sandbox.machine.processes import ticks

PREFIX = "pkb-arena-"
OWN = PREFIX + "own"
REMOVE_SECONDS = 2.0
_ENTER = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
_numbers = itertools.count()


class NoGroup(Exception):
    """No group can be made here. The message is one line."""


@dataclass(frozen=True)
class Group:
    """One group, from `make` until `remove`."""

    path: Path
    _open: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    """By name: descriptors of the files that timing reads and writes hundreds of times a second."""

    def starts(self, argv: list[str]) -> list[str]:
        """A command line that enters the group and then executes argv in the same process."""
        return ["/bin/sh", "-c", _ENTER, str(self.path), *argv]

    def kills(self) -> int:
        """The number of processes that the kernel has killed because memory ran out."""
        for line in _read(self.path / "memory.events").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
        return 0

    def kill(self) -> None:
        """Kills every process of the group at once, including one that is being forked (Linux 5.14)."""
        _write(self.path / "cgroup.kill", "1")

    def set_frozen(self, frozen: bool) -> None:
        """Stops every process of the group and all that they start, or continues them. No signal continues them."""
        with contextlib.suppress(OSError):  # the group is gone
            os.pwrite(self._descriptor("cgroup.freeze"), b"1" if frozen else b"0", 0)

    @property
    def frozen(self) -> bool:
        """Whether every process has stopped."""
        return b"frozen 1" in os.pread(self._descriptor("cgroup.events"), 256, 0)

    def pids(self) -> list[int]:
        """The ids of its processes."""
        return [int(pid) for pid in _read(self.path / "cgroup.procs").split()]

    def cpu_seconds(self) -> float:
        """CPU time of its processes, including those that have ended."""
        stat = os.pread(self._descriptor("cpu.stat"), 256, 0)
        return int(stat.partition(b"usage_usec ")[2].split()[0]) / 1e6

    def memory(self) -> int:
        """Bytes of memory that are charged to it; 0 if they are not counted."""
        with contextlib.suppress(OSError):
            return int(os.pread(self._descriptor("memory.current"), 32, 0))
        return 0

    def _descriptor(self, name: str) -> int:
        """The open file of this name. Raises OSError if the group is gone."""
        if name not in self._open:
            self._open[name] = os.open(self.path / name, os.O_WRONLY if name == "cgroup.freeze" else os.O_RDONLY)
        return self._open[name]

    def remove(self) -> bool:
        """Kills all processes and removes the group. Returns whether it is gone within REMOVE_SECONDS."""
        until = time.monotonic() + REMOVE_SECONDS
        self.kill()
        while self._open:
            os.close(self._open.popitem()[1])
        while True:
            try:
                self.path.rmdir()
                return True
            except FileNotFoundError:
                return True
            except OSError:
                if time.monotonic() > until:
                    return False
            time.sleep(0.002)


def make(limit: int | None, counted: bool) -> Group:
    """A new group for one world. limit: bytes without swap; None: no limit, memory is only counted.

    counted: False makes one without the memory controller, which can stop a world.

    Raises:
        NoGroup: this process may not make one here.
    """
    where = place(counted)
    if isinstance(where, str):
        raise NoGroup(where)
    return _make(where, limit)


@lru_cache(maxsize=2)
def place(counted: bool) -> Path | str:
    """The parent of groups, tested by starting a process; a text with the reason if there is none. counted: as for `make`."""
    try:
        root, own = _own_group()
        if not counted:
            return _tested(own, None)
        if "memory" not in _read(root / "cgroup.controllers").split():
            raise NoGroup("cgroup v2 does not have the memory controller here")
        for parent in _candidates(root, own):
            with contextlib.suppress(NoGroup):
                return _tested(parent, 64 << 20)
        return f"{own} cannot have a group with a bound on memory (start in a scope: systemd-run --user --scope -p Delegate=yes)"
    except NoGroup as reason:
        return str(reason)


def _own_group() -> tuple[Path, Path]:
    """(mount point of the hierarchy, group of this process)."""
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            _, _, _, top, mount, *_ = before.split()
            break
    else:
        raise NoGroup("no cgroup v2 is mounted")
    lines = _read(Path("/proc/self/cgroup")).splitlines()
    group = next((line[3:] for line in lines if line.startswith("0::")), "")
    inside = os.path.relpath(group or "/", top)
    own = Path(os.path.normpath(f"{mount}/{inside}"))
    if not own.is_relative_to(mount) or not own.is_dir():
        raise NoGroup("this process's group lies outside of what is mounted")
    return Path(mount), own


def _candidates(root: Path, own: Path) -> Iterator[Path]:
    is_root = not (own / "cgroup.type").exists()  # it may have processes and children
    if _divides(own) or (is_root and _divide(own)) or (_is_delegated(own) and _make_room(own)):
        yield own
    for above in (group for group in own.parents if group.is_relative_to(root)):
        below = next(group for group in (own, *own.parents) if group.parent == above)
        if _read(below / "memory.max").strip() not in ("", "max"):
            break
        if _divides(above):
            yield above
    if _make_room(own):
        yield own


def _divides(group: Path) -> bool:
    return "memory" in _read(group / "cgroup.subtree_control").split()


def _divide(group: Path) -> bool:
    return _write(group / "cgroup.subtree_control", "+memory") and _divides(group)


def _is_delegated(group: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(group, "user.delegate") == b"1"
    return False


def _make_room(group: Path) -> bool:
    return _is_all_ours(group) and _move_down(group) and _divide(group)


def _is_all_ours(group: Path) -> bool:
    """Whether every process of a group is an ancestor or a descendant of this one."""
    family = _ancestors(os.getpid())
    members = [int(pid) for pid in _read(group / "cgroup.procs").split()]
    return 0 not in members and all(pid in family or os.getpid() in _ancestors(pid) for pid in members)


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 0:
        found.append(pid)
        pid, *_ = ticks(pid) or (0,)
    return found


def _move_down(group: Path) -> bool:
    """Moves all processes of a group into a child. Returns False if that is not allowed."""
    child = group / OWN
    try:
        child.mkdir(exist_ok=True)
    except OSError:
        return False
    for _ in range(10):
        members = _read(group / "cgroup.procs").split()
        if not members:
            return True
        if not all(_write(child / "cgroup.procs", pid) for pid in members if Path(f"/proc/{pid}").exists()):
            return False
    return False


def _tested(parent: Path, limit: int | None) -> Path:
    """The parent, where a group can be made; without those of killed referees."""
    group = _make(parent, limit)
    try:
        subprocess.run(group.starts(["/bin/true"]), capture_output=True, timeout=10, check=True)
        if not _read(group.path / "cgroup.freeze") or "usage_usec" not in _read(group.path / "cpu.stat"):
            raise NoGroup("this kernel's groups cannot be frozen (Linux 5.2)")
    except (OSError, subprocess.SubprocessError) as error:
        raise NoGroup(str(error)) from None
    finally:
        group.remove()
    _sweep(parent)
    return parent


def _make(parent: Path, limit: int | None) -> Group:
    group = Group(parent / f"{PREFIX}{os.getpid()}-{next(_numbers)}")
    try:
        group.path.mkdir()
    except OSError as error:
        raise NoGroup(f"{group.path}: {error.strerror}") from None
    if limit is not None:
        bounded = _write(group.path / "memory.max", str(limit))
        if (group.path / "memory.swap.max").exists():
            bounded = _write(group.path / "memory.swap.max", "0") and bounded
        if not bounded:
            group.remove()
            raise NoGroup(f"{group.path}: its memory cannot be limited")
    # All processes are killed together, because the other ranks would wait for a killed one.
    _write(group.path / "memory.oom.group", "1")
    return group


def _sweep(parent: Path) -> None:
    """Removes the groups of killed referees with their processes, which may be frozen."""
    for path in parent.glob(PREFIX + "*-*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if not owner.isdigit() or Path(f"/proc/{owner}").exists():
            continue
        if "0" not in _read(path / "cgroup.procs").split():  # a group of another PID namespace has its owner there
            Group(path).remove()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text)
    except OSError:
        return False
    return True
