"""Ends a world without a PID namespace through its first program (sandbox/jail/inside.py)."""

import contextlib
import os
import signal
import time
from collections.abc import Callable

from sandbox.jail.profiles import Profile
from sandbox.machine.processes import runs

SECONDS = 2.0


def ask(profile: Profile, tree: Callable[[], list[int]]) -> None:
    """Asks a world to end, and waits at most SECONDS until its known processes are gone.

    It does nothing for other profiles than nested, where killing the process tree is enough.
    tree(): the world's processes, the first process first.
    """
    if profile.name != "nested":
        return
    seen = tree()
    for process in seen[:2]:  # bubblewrap, and the first program
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.kill(process, number)
    until = time.monotonic() + SECONDS
    while any(runs(process) for process in seen) and time.monotonic() < until:
        time.sleep(0.002)
