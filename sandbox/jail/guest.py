"""Caps for an agent program in a jail (a guest)."""

from dataclasses import dataclass

PROCESSES_ROOM = 64
DISK_ROOM = 64 << 20
"""Limits of the operating system lie above the caps, so that `usage.py` finds the excess first and names the cap."""


@dataclass(frozen=True)
class Caps:
    """Limits for all processes of one guest together."""

    memory: int
    """Bytes, including files in /tmp and /dev/shm."""
    processes: int
    """Including threads."""
    disk: int
    """Bytes in /tmp; the same in /dev/shm."""
    cpu_seconds: float
    """Including processes that have ended."""
