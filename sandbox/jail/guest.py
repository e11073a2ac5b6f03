"""A program of somebody else's behind the walls: what is hidden from it, and how much it may use."""

from dataclasses import dataclass

PROCESSES_ROOM = 64
DISK_ROOM = 64 << 20
"""The kernel refuses a little later than `usage.py` looks: a program over a cap is seen there, and told which one."""


@dataclass(frozen=True)
class Caps:
    """The most that all processes of one guest may use together."""

    memory: int
    """Bytes, files in /tmp and /dev/shm included: they are memory, too."""
    processes: int
    """Threads included."""
    disk: int
    """Bytes in /tmp, and as many in /dev/shm."""
    cpu_seconds: float
    """Of all processors, those of processes that have ended included."""
