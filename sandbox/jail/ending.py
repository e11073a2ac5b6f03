"""Ends a world that has no PID namespace: its first program (sandbox/jail/inside.py) kills all of it with one call."""

import contextlib
import os
import signal
import time
from collections.abc import Callable

from sandbox.jail.profiles import Profile
from sandbox.machine.processes import runs

SECONDS = 2.0


def ask(profile: Profile, tree: Callable[[], list[int]]) -> None:
    """Asks a world to end, and waits until what was seen of it is gone, SECONDS at most. tree(): its processes, the first first.

    Nothing where the profile has a PID namespace, or nobody to ask: killing the tree is enough there, or all that can be done.
    """
    if profile.name != "nested":
        return
    seen = tree()
    for process in seen[:2]:  # bubblewrap stands before the program that is asked
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.kill(process, number)
    until = time.monotonic() + SECONDS
    while any(runs(process) for process in seen) and time.monotonic() < until:
        time.sleep(0.002)
