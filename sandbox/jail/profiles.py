"""Command lines of the jail. One bubblewrap per world, with all its ranks inside.

full    a normal user, user namespaces allowed: everything below, and no capabilities anywhere
root    started as root: bubblewrap keeps its privileges, the payload is given a uid of its own and drops all capabilities
nested  a container that allows no new procfs: no PID namespace; the rest as in full or root
none    no walls: a scrubbed environment, closed descriptors, and a process tree that is killed as a whole
"""

import itertools
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE_ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH")
KEPT_PREFIXES = ("NCCL_", "TORCH_SYMM_MEM_", "NVSHMEM_", "CUDA_VISIBLE_")
INSIDE = Path("/tmp")
"""The world's private folder, as seen from inside."""
TMPFS_BYTES = 2 << 30
SHM_BYTES = 2 << 30
FIRST_UID = 60_123
_uids = itertools.count()


@dataclass(frozen=True)
class Wrapped:
    """How to start a world."""

    argv: list[str]
    env: dict[str, str]
    fds: tuple[int, ...] = ()
    """Descriptors that the jail itself needs; whoever starts the world closes them afterwards."""


@dataclass(frozen=True)
class Profile:
    """What walls a world is behind."""

    name: str
    loses: str = ""
    """What this profile cannot promise; empty for full."""
    advice: str = ""
    """The one command that would improve it."""

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
    ) -> Wrapped:
        """argv behind the walls. readable: paths beside the program's own that it may read; folder: a private one outside."""
        if self.name == "none":
            return Wrapped(argv, environment(folder, extra))
        command = _bubblewrap(self.name, readable, filter_fd, devices)
        return Wrapped([*command, *argv], environment(INSIDE, extra), (filter_fd,) if filter_fd else ())


NONE = Profile(
    "none",
    "a kernel can read your files, reach the network and signal your processes",
    "apt-get install bubblewrap",
)
FULL = Profile("full")
ROOT = Profile(
    "root",
    "started as root, so the walls rest on a uid of their own and the system-call filter",
    "start pkb-arena as a normal user",
)
NESTED = Profile(
    "nested",
    "no PID namespace: processes are found and killed by walking the tree",
    "start the container with --security-opt systempaths=unconfined",
)


def environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a world: nothing of the user's beyond paths and library settings, never a key."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_PREFIXES)}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TERM": "dumb",
        # glibc tunes these by what a process has freed so far, so that a fresh world would pay for page faults that the
        # baseline's, which has computed oracles, no longer has.
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        **extra,
    }


def import_paths() -> list[Path]:
    """Where this process imports from that Python itself would not look: a world must look there, too."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [
        SOURCE_ROOT,
        *(Path(entry).resolve() for entry in named if entry and Path(entry).resolve() != SOURCE_ROOT),
    ]


def program_paths() -> list[Path]:
    """What Python and the harness need to be read from inside, beyond the system's own folders."""
    paths = {
        Path(sys.prefix),
        Path(sys.base_prefix),
        SOURCE_ROOT / "sandbox",
        SOURCE_ROOT / "problems",
        *import_paths()[1:],
    }
    return sorted(path.resolve() for path in paths if not str(path).startswith("/usr"))


def _bubblewrap(
    name: str, readable: tuple[Path, ...], filter_fd: int | None, devices: tuple[str, ...]
) -> list[str]:
    root = os.geteuid() == 0
    command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--hostname", "arena"]
    command += ["--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if name != "nested":
        command.append("--unshare-pid")
    if not root:
        command += ["--unshare-user", "--disable-userns"]
    for system in ("/usr", "/opt"):
        command += ["--ro-bind-try", system, system]
    for link in ("bin", "lib", "lib64", "sbin"):
        path = Path("/") / link
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            command += ["--ro-bind", str(path), str(path)]
    for file in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"):
        command += ["--ro-bind-try", file, file]
    if name == "nested":
        command += ["--ro-bind", "/proc", "/proc"]
    else:
        command += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    command += ["--dev", "/dev"]
    if devices:
        command += ["--ro-bind", "/sys", "/sys"]
    for device in devices:
        command += ["--dev-bind-try", device, device]
    for mount, size in (("/dev/shm", SHM_BYTES), ("/tmp", TMPFS_BYTES)):
        command += ["--perms", "1777", "--size", str(size), "--tmpfs", mount]
    made: set[Path] = {Path("/"), Path("/usr"), Path("/opt"), Path("/tmp")}
    for path in [*program_paths(), *(path.resolve() for path in readable)]:
        for parent in reversed(
            path.parents
        ):  # parents that bubblewrap makes by itself would be closed to other uids
            if parent not in made and not str(parent).startswith(("/usr/", "/opt/")):
                made.add(parent)
                command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind", str(path), str(path)]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    if filter_fd is not None:
        command += ["--seccomp", str(filter_fd)]
    limits = ["prlimit", "--nproc=1024:1024", "--nofile=4096:4096", "--core=0:0"]
    if root:
        uid = FIRST_UID + next(_uids) % 5000  # one uid a world: the limit on processes counts per uid
        drop = [
            f"--reuid={uid}",
            f"--regid={uid}",
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
        ]
        return [*command, "--", "setpriv", *drop, "--no-new-privs", *limits]
    return [*command, "--", *limits]
