"""The memory limit of a world, and the caps of an agent program: by control groups, otherwise by checks from outside.

The check adds proportional set sizes, so that shared pages count once. It also adds memory that may not be mapped: files in the
private /tmp and /dev/shm, memory files behind descriptors, and shared memory after MADV_DONTNEED. A world without mounts of its
own is also limited in the files that it makes in its folder. For an agent program's processes and files the operating system has
limits a little above the caps (profiles.py).
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from sandbox.jail import cgroup
from sandbox.jail.profiles import DISK_ROOM, TMPFS_BYTES, Caps, Profile
from sandbox.machine.processes import cpu_seconds_of_all, threads, tree

SHARE = 0.45
"""Share of the free memory at the start of a world. The two kernels of a duel have twice as much."""
LEAST = 256 << 20
_SHARED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) \S{3}s ([0-9a-f]+) (\S+) (\d+) +(?:/dev/zero|/memfd:|/SYSV|/anon_hugepage)", re.MULTILINE
)
"""A line of /proc/PID/maps with shared memory that is in no private mount: from, to, offset, device, inode."""
MOST_FILES = 20_000
"""Files and folders that a world without its own file system may make."""
MOUNTS = ("tmp", "dev/shm")
"""The mounts of a world's own, in its root folder."""
MOST_FILES_OF_MOUNT = 100_000
"""Files in each of them. An empty file takes no block, but 1 KiB of kernel memory."""
MOST_CONNECTED = os.sysconf("SC_PHYS_PAGES") // 32
"""Pages by which all sockets' memory may grow. From twice as many on, Linux slows every connection, the baseline's too."""


def limit_bytes(devices: int = 0) -> int:
    """The limit for a world that starts now: PKB_WORLD_MEMORY bytes if the variable is set, else a share of free memory.

    devices: host bytes that its ranks need for their devices, on top of PKB_WORLD_MEMORY.
    """
    with contextlib.suppress(ValueError):
        return max(int(os.environ.get("PKB_WORLD_MEMORY", "")), LEAST) + devices
    return int(free_bytes() * SHARE)


def free_bytes() -> int:
    """Bytes that new processes can use."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024


def connected_pages() -> int:
    """Pages that all TCP and UDP sockets of this machine hold together; 0 if Linux does not tell."""
    sockstat = Path("/proc/net/sockstat")
    return sum(map(int, re.findall(r" mem (\d+)", sockstat.read_text()))) if sockstat.exists() else 0


def _connect_much(pids: list[int]) -> bool:
    """Whether sockets in the network of these processes have long queues, or may: many, of which each may ask for 16 MiB."""
    for pid in reversed(pids):  # the first ones may be outside the world's network, and the last one may have ended
        with contextlib.suppress(OSError):
            tables = [path for path in Path(f"/proc/{pid}/net").iterdir() if path.name.startswith(("tcp", "udp"))]
            lines = [line for table in tables for line in table.read_text().splitlines()[1:]]
            queued = sum(int(size, 16) for line in lines for size in line.split()[4].split(":"))
            return len(lines) > 64 or 2 * queued > MOST_CONNECTED * os.sysconf("SC_PAGESIZE")
    return False


class Bound:
    """The memory limit of one world, from before its start until it has ended."""

    def __init__(
        self, profile: Profile, folder: Path, limit: int | None, names: tuple[str, str] = ("the ranks", "a world")
    ) -> None:
        """limit: bytes; None for a trusted world, which needs none. folder: the world's own, as seen from outside.

        names: subject and owner in messages.
        """
        self._who, self._whose = names
        self._profile = profile
        self._folder = folder
        self._limit = limit
        self.group: cgroup.Group | None = None
        """The world's control group, if this machine allows one."""
        self._connected = connected_pages()
        self._counted = False
        """Whether the group limits its memory."""
        with contextlib.suppress(cgroup.NoGroup):
            try:
                self.group = cgroup.make(limit, counted=True)
                self._counted = True
            except cgroup.NoGroup:
                self.group = cgroup.make(None, counted=False)

    def starts(self, argv: list[str]) -> list[str]:
        """The command line that starts argv within the limit."""
        return self.group.starts(argv) if self.group else argv

    def excess(self, pids: list[int]) -> str:
        """The excess over the limit, in one line; empty if there is none. pids: the world's processes."""
        if self._limit is None:
            return ""
        if connected_pages() - self._connected > MOST_CONNECTED and _connect_much(pids):
            return "out of memory for connections: with theirs, sockets hold more than a 32nd of this machine's memory"
        most = f"the {self._limit >> 20} MiB {self._whose} may have"
        if self.group is None or not self._counted:
            held = held_bytes(pids, () if self._profile.name == "none" else MOUNTS, self._limit)
            if held > self._limit:
                return f"{self._who} hold {held >> 20} MiB together, more than {most}"
        elif self.group.kills():
            return f"{self._who} asked for more than {most}; the operating system has ended them"
        if self._profile.name == "none":
            return _too_much_on_disk(self._folder, pids)
        if max((facts.f_files - facts.f_ffree for facts in _mounts(pids, MOUNTS)), default=0) > MOST_FILES_OF_MOUNT:
            return f"{self._who} made more than {MOST_FILES_OF_MOUNT} files"
        return ""

    def killed(self) -> str:
        """One line if the operating system has killed processes because memory ran out; else empty."""
        return self.excess([]) if self.group and self._counted and self.group.kills() else ""

    def close(self) -> bool:
        """Kills what is left in the group and removes it. Returns whether it is gone."""
        if self._profile.name == "none":
            _open_folders(self._folder)
        return self.group is None or self.group.remove()


def described() -> str:
    """How the memory of a world is limited on this machine, in one line."""
    most = f"at most {limit_bytes() / 2**30:.1f} GiB for a world that starts now"
    place = cgroup.place(counted=True)
    if isinstance(place, str):
        return f"watched from outside, {most} ({place})"
    return f"bounded by the kernel (a control group per world in {place}), {most}"


def _too_much_on_disk(folder: Path, pids: list[int]) -> str:
    """The excess of files in a world's folder on a shared disk, including deleted files that are open; empty if there is none."""
    bytes_, files = 0, 0
    seen: set[tuple[int, int]] = set()

    for path, folders, names in os.walk(folder):
        files += len(folders) + len(names)
        for name in names:
            with contextlib.suppress(OSError):
                bytes_ += _new_bytes(os.lstat(f"{path}/{name}"), seen)
        if files > MOST_FILES:
            return f"the ranks made more than {MOST_FILES} files"
    bytes_ += sum(_new_bytes(facts, seen) for pid in pids for facts in _opened(pid, f"{folder}/"))
    if bytes_ > TMPFS_BYTES:
        return f"the ranks' files take {bytes_ >> 20} MiB, more than the {TMPFS_BYTES >> 20} MiB a world may have"
    return ""


def _open_folders(folder: Path) -> None:
    """Makes folders accessible again that a kernel has closed, so that they can be removed."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                if not os.path.islink(f"{path}/{name}"):
                    os.chmod(f"{path}/{name}", 0o700)


def held_bytes(pids: list[int], private: tuple[str, ...] = (), enough: int = 0) -> int:
    """Bytes of memory that these processes hold together, or a greater number up to `enough`.

    That number has shared pages once a process. It is known in 1 ms, while Linux adds up shares of pages for 10 ms a rank.
    A process that cannot be read counts by its resident size. private: mounts of the world's own, whose files all count.
    """
    own = shared = 0
    resident: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    unmapped = sum((facts.f_blocks - facts.f_bfree) * facts.f_frsize for facts in _mounts(pids, private))
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident[pid] = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
            unmapped += sum(_new_bytes(facts, seen) for facts in _opened(pid, "/memfd:")) + _shared_memory(pid, seen)
    if (most := sum(resident.values()) + unmapped) <= enough:
        return most
    for pid, size in resident.items():
        with contextlib.suppress(OSError, ValueError, IndexError):
            sizes = _rollup(pid)
            own += sizes.get("Pss", size) - sizes.get("Pss_Shmem", 0)
            shared += sizes.get("Pss_Shmem", 0)
    return own + max(shared, unmapped)


def _rollup(pid: int) -> dict[str, int]:
    """Sizes in bytes by name; empty if this process may not read them."""
    text = ""
    with contextlib.suppress(PermissionError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    lines = map(str.split, text.splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def _opened(pid: int, prefix: str) -> Iterator[os.stat_result]:
    """The files that a process has open and whose names begin like this."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith(prefix):
                    yield os.stat(entry.path)


def _new_bytes(facts: os.stat_result, seen: set[tuple[int, int]]) -> int:
    """The bytes of a file that was not seen yet."""
    file = (facts.st_dev, facts.st_ino)
    if file in seen:
        return 0
    seen.add(file)
    return facts.st_blocks * 512


def _shared_memory(pid: int, seen: set[tuple[int, int]]) -> int:
    """Bytes of shared memory that a process has mapped, resident in the mapping or not.

    Without CAP_SYS_ADMIN its files cannot be read, and the size of the mapping counts.
    """
    total = 0
    extents: dict[tuple[int, int], int] = {}
    for start, end, offset, device, inode in _SHARED.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")):
        major, minor = (int(part, 16) for part in device.split(":"))
        file = (os.makedev(major, minor), int(inode))
        if file in seen:
            continue
        try:
            facts = os.stat(f"/proc/{pid}/map_files/{start}-{end}")
        except OSError:
            extents[file] = max(extents.get(file, 0), int(offset, 16) + int(end, 16) - int(start, 16))
            continue
        seen.add(file)
        total += facts.st_blocks * 512
    seen.update(extents)
    return total + sum(extents.values())


def _mounts(pids: list[int], private: tuple[str, ...]) -> list[os.statvfs_result]:
    if private and (root := own_root(pids)):
        with contextlib.suppress(OSError):
            return [os.statvfs(root / mount) for mount in private]
    return []


def own_root(pids: list[int]) -> Path | None:
    """The root folder of the first of these processes that has its own mounts and root."""
    for pid in pids:
        with contextlib.suppress(OSError):
            root = Path(f"/proc/{pid}/root")
            apart = os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
            if apart and not os.path.samefile(f"{root}/", "/"):
                return root
    return None


class AgentUsage:
    """The resources of one agent program, from before its start until `close`. Every method may take milliseconds."""

    def __init__(self, profile: Profile, folder: Path, caps: Caps) -> None:
        """folder: its private folder outside. The memory cap is lower if the machine has less free memory."""
        self._caps = caps
        self._bound = Bound(profile, folder, min(caps.memory, limit_bytes()), ("its processes", "it"))
        self._mounts: dict[str, int] = {}
        """Descriptors of its mounts by name, which stay readable when it has ended."""

    def starts(self, argv: list[str]) -> list[str]:
        """The command line that starts the program within its memory limit."""
        return self._bound.starts(argv)

    def excess(self, pid: int) -> str:
        """The cap that a running program exceeds, as "memory: ..."; empty if there is none. pid: its first process."""
        pids = tree(pid)
        self._open_mounts(pids)
        count = threads(pids) - 2  # those of bubblewrap itself
        if count > self._caps.processes:
            return f"processes: it has {count} processes and threads, more than the {self._caps.processes} it may have"
        return self._filled() or _of_memory(self._bound.excess(pids)) or self._computed(pids)

    def left_behind(self) -> str:
        """The cap that an ended program had exceeded, as in `excess`; empty if there is none."""
        return _of_memory(self._bound.killed()) or self._filled()

    def close(self) -> None:
        """Kills what is left in its control group, and closes its mounts."""
        for mount in self._mounts.values():
            os.close(mount)
        self._mounts.clear()
        self._bound.close()

    def _open_mounts(self, pids: list[int]) -> None:
        root = None if self._mounts else own_root(pids)
        if root is None:
            return
        with contextlib.ExitStack() as undo:
            opened = {}
            for name in MOUNTS:
                try:
                    opened[name] = os.open(root / name, os.O_PATH | os.O_DIRECTORY)
                except OSError:
                    return
                undo.callback(os.close, opened[name])
                # While bubblewrap builds the jail, other file systems are mounted in these places.
                facts = os.fstatvfs(opened[name])
                if abs(facts.f_blocks * facts.f_frsize - self._caps.disk - DISK_ROOM) > facts.f_frsize:
                    return
            undo.pop_all()
            self._mounts = opened

    def _filled(self) -> str:
        for name, mount in self._mounts.items():
            facts = os.fstatvfs(mount)
            used, files = (facts.f_blocks - facts.f_bfree) * facts.f_frsize, facts.f_files - facts.f_ffree
            if used > self._caps.disk:
                return f"disk: its files in /{name} take {used >> 20} MiB, more than the {self._caps.disk >> 20} MiB it may have"
            if files > MOST_FILES_OF_MOUNT:
                return f"disk: it made more than {MOST_FILES_OF_MOUNT} files in /{name}"
        return ""

    def _computed(self, pids: list[int]) -> str:
        group = self._bound.group
        used = group.cpu_seconds() if group is not None else cpu_seconds_of_all(pids)
        most = self._caps.cpu_seconds
        if used > most:
            return f"CPU time: its processes have used {used:.0f} s, more than the {most:.0f} s they may have"
        return ""


def _of_memory(excess: str) -> str:
    return f"memory: {excess}" if excess else ""
