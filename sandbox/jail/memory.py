"""How much memory a world may hold, watched from outside.

Proportional set sizes, so that shared pages count once; and what no process maps but the world holds all the same: files in its
private /tmp and /dev/shm, and memory files behind a descriptor.
"""

import contextlib
import os
from pathlib import Path

SHARE = 0.6
"""Of the memory that is free when the world starts."""
LEAST = 256 << 20


CUDA_BYTES = 6 << 30
"""Host memory that a rank's CUDA context and the code loaded into it may take, whatever the kernel does (seen: 3.5 GiB)."""


def limit_bytes(gpus: int = 0) -> int:
    """The bound for a world that starts now: PKB_WORLD_MEMORY bytes where the referee's environment has it, else a share.

    gpus: how many of its ranks have a CUDA context.
    """
    with contextlib.suppress(ValueError):
        return max(int(os.environ.get("PKB_WORLD_MEMORY", "")), LEAST) + gpus * CUDA_BYTES
    fields = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    return int(int(fields["MemAvailable"].split()[0]) * 1024 * SHARE)


def held_bytes(pids: list[int], private: tuple[str, ...] = ()) -> int:
    """What these processes hold together.

    Processes that cannot be read count by their resident size. private: mounts of the world's own as its processes name them;
    their files count, mapped or not.
    """
    own = shared = unmapped = 0
    seen: set[tuple[int, int]] = set()
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            try:
                sizes = _rollup(pid)
            except PermissionError:
                own += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
                continue
            own += sizes.get("Pss", 0) - sizes.get("Pss_Shmem", 0)
            shared += sizes.get("Pss_Shmem", 0)
            unmapped += _memory_files(pid, seen)
    unmapped += _files_bytes(pids, private)
    return own + max(shared, unmapped)


def _rollup(pid: int) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def _memory_files(pid: int, seen: set[tuple[int, int]]) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith("/memfd:"):
                    facts = os.stat(entry.path)
                    if (facts.st_dev, facts.st_ino) not in seen:
                        seen.add((facts.st_dev, facts.st_ino))
                        total += facts.st_blocks * 512
    return total


def _files_bytes(pids: list[int], private: tuple[str, ...]) -> int:
    """What lies in these mounts, as the first process sees them that has mounts of its own: the whole world shares them."""
    for pid in pids if private else []:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
                mounts = [os.statvfs(f"/proc/{pid}/root{mount}") for mount in private]
                return sum((facts.f_blocks - facts.f_bfree) * facts.f_frsize for facts in mounts)
    return 0
