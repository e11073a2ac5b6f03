"""How much memory a world may hold, watched from outside: proportional set sizes, so that shared pages count once."""

import contextlib
from pathlib import Path

SHARE = 0.6
"""Of the memory that is free when the world starts."""


def limit_bytes() -> int:
    """The bound for a world that starts now."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    return int(int(fields["MemAvailable"].split()[0]) * 1024 * SHARE)


def held_bytes(pids: list[int]) -> int:
    """What these processes hold together. Processes that cannot be read count by their resident size."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            try:
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
            except PermissionError:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return total
