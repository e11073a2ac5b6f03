"""Command lines of the jail. One bubblewrap per world, with all its ranks inside.

full    started as a normal user, user namespaces allowed; no process has capabilities
root    started as root; the world gets a uid of its own and drops all capabilities
nested  a container that allows no new procfs: without a PID namespace, the rest as in full or root
none    no isolation: a scrubbed environment, closed descriptors, and a process tree that is killed as a whole
"""

import itertools
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.jail import seccomp
from sandbox.machine import processes, thunderkittens
from sandbox.machine.nvshmem_package import ENVIRONMENT

SOURCE_ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH")
KEPT_PREFIXES = ("NCCL_", "TORCH_SYMM_MEM_", "NVSHMEM_", "CUDA_VISIBLE_")
PROGRAM = ("sandbox", "problems")
PACKAGES = (*PROGRAM, "arena", "screens", "tests")
JOINED = ("full", "root")
"""Profiles whose worlds are forked outside and join the jail (sandbox/jail/joining.py)."""
WITH_AGENTS = ("full", "root")
"""Profiles that can hold agent programs, which see nothing of this program."""
INSIDE = Path("/tmp")
"""The world's private folder, as its processes see it."""
TMPFS_BYTES = 2 << 30
SHM_BYTES = 2 << 30
FIRST_UID, FIRST_AGENT_UID = 60_123, 55_123
UIDS = 5000
USER = "arena"
PROCESSES, OPEN_FILES, CORE_BYTES = 1024, 4096, 0
"""Limits of a world."""
PROCESSES_ROOM = 64
DISK_ROOM = 64 << 20
"""The operating system's limits are above the caps by these, so that sandbox/jail/memory.py finds the excess first and
names the cap."""
LINKS = ("/bin", "/lib", "/lib64", "/sbin")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
_uids = itertools.count(secrets.randbelow(UIDS))
"""Numbers of uids. Arenas that cannot see each other's processes begin at different ones."""


@dataclass(frozen=True)
class Caps:
    """Limits for all processes of one agent program together."""

    memory: int
    """Bytes, including files in /tmp and /dev/shm."""
    processes: int
    """Number of processes, including threads."""
    disk: int
    """Bytes in /tmp; the same in /dev/shm."""
    cpu_seconds: float
    """Including processes that have ended."""


@dataclass(frozen=True)
class Wrapped:
    """How to start a world."""

    argv: list[str]
    env: dict[str, str]
    fds: tuple[int, ...] = ()
    """Descriptors that the jail needs."""

    @property
    def inherited(self) -> dict[str, Any]:
        """The arguments of `subprocess` for what its first process inherits."""
        return {"env": self.env, "pass_fds": self.fds}

    def close(self) -> None:
        """Closes the descriptors, after the start."""
        for fd in self.fds:
            os.close(fd)


@dataclass(frozen=True)
class Profile:
    """The isolation of a world."""

    name: str
    loses: str = ""
    """What this profile does not protect; empty for full."""

    @property
    def forks(self) -> bool:
        """Whether the fork server forks the worlds: without isolation, or if the jail can be joined."""
        return self.name == "none" or self.name in JOINED

    def inside(self, folder: Path) -> Path:
        """A world's private folder as its processes see it."""
        return folder if self.name == "none" else INSIDE

    def wrap(
        self,
        argv: list[str],
        folder: Path,
        extra: Mapping[str, str],
        readable: tuple[Path, ...] = (),
        filter_fd: int | None = None,
        devices: tuple[str, ...] = (),
        caps: Caps | None = None,
        hidden: tuple[Path, ...] = (),
    ) -> Wrapped:
        """A command in this jail.

        folder: the world's private folder, as seen from outside; readable: paths that it may read in addition to the
        program's.
        caps: limits of an agent program; it needs a PID namespace. hidden: folders that such a program sees empty.
        """
        assert caps is None or self.name in WITH_AGENTS
        if self.name == "none":
            return Wrapped(argv, environment(folder, extra))
        uid = _uid(caps)
        hosts = {} if caps is None else {"/etc/hosts": "127.0.0.1 localhost arena\n::1 localhost\n"}
        names = user_files(uid, uid if os.geteuid() == 0 else os.getegid(), hosts)
        command = _bubblewrap(self.name, readable, filter_fd, devices, caps, hidden, uid, names)
        fds = (*names.values(), *(() if filter_fd is None else (filter_fd,)))
        return Wrapped([*command, *argv], environment(INSIDE, extra), fds)


NONE = Profile("none", "a kernel can read your files, reach the network and signal your processes")
FULL = Profile("full")
ROOT = Profile("root", "started as root, so isolation depends on a separate uid and the system-call filter")
NESTED = Profile("nested", "no PID namespace: processes are found and killed by walking the tree")


def environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a world. It keeps the user's paths and library settings, never a key."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_PREFIXES)}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home),
        "USER": USER,
        "LOGNAME": USER,
        "XDG_CACHE_HOME": f"{home}/.cache",
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/.cache/inductor",
        "TRITON_CACHE_DIR": f"{home}/.cache/triton",
        "OMP_NUM_THREADS": "1",
        # torch keeps the last 2000 collectives. A new world would take new memory for each until then, an old one does not.
        "TORCH_FR_BUFFER_SIZE": "16",
        "MKL_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        **ENVIRONMENT,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TERM": "dumb",
        **_checkout(),
        # glibc adapts these thresholds to what a process has freed. Fixed values give all worlds the same page faults.
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        **extra,
    }


def _checkout() -> dict[str, str]:
    """The variable with the path of ThunderKittens for a world; empty without a checkout."""
    root = thunderkittens.checkout()
    return {} if root is None else {thunderkittens.VARIABLE: str(root)}


def user_files(uid: int, gid: int, others: Mapping[str, str]) -> dict[str, int]:
    """Files that name a world's user and group, and others, as descriptors to read them from. torch.compile needs the name."""
    texts = {**others, "/etc/passwd": f"{USER}:x:{uid}:{gid}::{INSIDE}:/bin/sh\n", "/etc/group": f"{USER}:x:{gid}:\n"}
    return {path: seccomp.memory_file(text.encode()) for path, text in texts.items()}


def import_paths() -> list[Path]:
    """The folders that this process imports from beyond Python's own; a world needs them, too."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [SOURCE_ROOT, *(Path(entry).resolve() for entry in named if entry and Path(entry).resolve() != SOURCE_ROOT)]


def python_path() -> str:
    """The PYTHONPATH of a world."""
    return os.pathsep.join(map(str, import_paths()))


def program_paths() -> list[Path]:
    """The paths that Python and the harness read inside a world, beyond the system's folders."""
    paths = {Path(sys.prefix), Path(sys.base_prefix), *(SOURCE_ROOT / name for name in PROGRAM), *import_paths()[1:]}
    if (checkout := thunderkittens.checkout()) is not None:
        paths |= set(thunderkittens.shown(checkout))
    # A virtual environment may be a link; both its names are needed.
    named = paths | {path.resolve() for path in paths}
    return sorted(path for path in named if not str(path).startswith("/usr"))


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs one of the program's modules."""
    return [sys.executable, "-m", module, *arguments]


def agent_interpreter() -> Path:
    """A Python for agent programs, without the packages of this environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _bubblewrap(
    name: str,
    readable: tuple[Path, ...],
    filter_fd: int | None,
    devices: tuple[str, ...],
    caps: Caps | None,
    hidden: tuple[Path, ...],
    uid: int,
    files: Mapping[str, int],
) -> list[str]:
    root = os.geteuid() == 0
    command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--hostname", "arena"]
    command += ["--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if name != "nested":
        command.append("--unshare-pid")
    if not root:
        command.append("--unshare-user")
        if name != "nested":  # it writes to /proc/sys; in nested the filter alone refuses user namespaces
            command.append("--disable-userns")
    for system in ("/usr", "/opt"):
        command += ["--ro-bind-try", system, system]
    for path in map(Path, LINKS):
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            command += ["--ro-bind", str(path), str(path)]
    command += ["--perms", "0755", "--dir", "/etc"]  # the world's uid cannot read the one that bubblewrap makes
    for file in SYSTEM_FILES:
        command += ["--ro-bind-try", file, file]
    for file, fd in files.items():
        command += ["--perms", "0644", "--file", str(fd), file]
    if name == "nested":
        command += ["--ro-bind", "/proc", "/proc"]
    else:
        command += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    command += ["--dev", "/dev"]
    if devices:
        command += ["--ro-bind", "/sys", "/sys"]
    for device in devices:
        command += ["--dev-bind-try", device, device]
    sizes = (SHM_BYTES, TMPFS_BYTES) if caps is None else (caps.disk + DISK_ROOM,) * 2
    for mount, size in zip(("/dev/shm", "/tmp"), sizes, strict=True):
        command += ["--perms", "1777", "--size", str(size), "--tmpfs", mount]
    command += _folders(readable, caps is not None, hidden)
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    if filter_fd is not None:
        command += ["--seccomp", str(filter_fd)]
    processes = PROCESSES if caps is None else caps.processes + PROCESSES_ROOM
    limits = {"nproc": processes, "nofile": OPEN_FILES, "core": CORE_BYTES}
    start = ["prlimit", *(f"--{what}={most}:{most}" for what, most in limits.items())]
    if root:
        start = [*_drop(uid), *start]
    if name == "nested" and (not root or seccomp.is_available()):
        start += _first_program()  # otherwise the world's own uid restricts its signals
    return [*command, "--", *start]


def _folders(readable: tuple[Path, ...], of_agent: bool, hidden: tuple[Path, ...]) -> list[str]:
    """Options that show folders read-only: the program's, or to an agent program Python's alone, without those hidden from it."""
    options: list[str] = []
    made = {Path("/"), Path("/usr"), Path("/opt"), Path("/tmp")}
    own = program_paths()
    if of_agent:
        paths = (Path(sys.base_prefix).resolve(), agent_interpreter())
        own = [path for path in paths if not str(path).startswith(("/usr", "/opt"))]
    shown = [*own, *(path.resolve() for path in readable)]
    for path in shown:
        for parent in reversed(path.parents):  # those that bubblewrap makes are not readable for other uids
            if parent not in made and not str(parent).startswith(("/usr/", "/opt/")):
                made.add(parent)
                options += ["--perms", "0755", "--dir", str(parent)]
        options += ["--ro-bind", str(path), str(path)]
    if of_agent:
        roots = [Path("/usr"), Path("/opt"), *shown]
        covered = [path.resolve() for path in [*(SOURCE_ROOT / name for name in PACKAGES), *hidden]]
        covered = [path for path in covered if path.is_dir() and any(map(path.is_relative_to, roots))]
        for path in covered:
            options += ["--perms", "0755", "--tmpfs", str(path)]
        for path in covered:  # an agent program that owns such a folder could fill it
            options += ["--remount-ro", str(path)]
    return options


def _first_program() -> list[str]:
    """The command that starts sandbox/jail/inside.py, isolated from the environment and site-packages."""
    root = repr(str(SOURCE_ROOT))
    start = f"import sys; sys.path.insert(0, {root}); from sandbox.jail.inside import main; main()"
    return [sys.executable, "-I", "-S", "-c", start]


def _uid(caps: Caps | None) -> int:
    """The uid inside.

    As root, each world has one that no process has, because the limit on processes counts per uid, also those of other
    arenas. Agent programs have separate uids, so that their processes do not count against a kernel's limit.
    """
    if os.geteuid():
        return os.geteuid()
    first = FIRST_UID if caps is None else FIRST_AGENT_UID
    taken = processes.user_ids()
    return next(uid for number in _uids if (uid := first + number % UIDS) not in taken)


def _drop(uid: int) -> list[str]:
    ids = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return ["setpriv", *ids, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
