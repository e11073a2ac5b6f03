"""Checks the resources of an agent program against its caps, while it runs and when it has ended.

Memory is limited as for a world (memory.py). For processes and files the operating system has limits a little above the caps
(profiles.py). CPU time is read from the control group, or from the processes.
"""

import contextlib
import os
from pathlib import Path

from sandbox.jail.memory import MOST_FILES_OF_MOUNT, MOUNTS, Bound, limit_bytes, own_root
from sandbox.jail.profiles import DISK_ROOM, Caps, Profile
from sandbox.machine.processes import cpu_seconds_of_all, threads, tree

_JAIL_PROCESSES = 2
"""Processes of bubblewrap itself."""


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
        count = threads(pids) - _JAIL_PROCESSES
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
