"""Waits until the processes of an engine are idle, because a starting world keeps a core busy for seconds."""

import asyncio
import os
import time

from sandbox.machine.processes import cpu_seconds, tree

LIMIT_S = 30.0
CHECK_S = 0.5
CALM = 0.2
"""Cores that all processes below this one may use together."""
CHECKS = 2
"""Calm checks in a row that are needed."""


async def until_calm() -> bool:
    """Waits until all processes below this one use next to no CPU time. False if they still do after LIMIT_S."""
    ends = time.monotonic() + LIMIT_S
    calm = 0
    before, since = _used(), time.monotonic()
    while calm < CHECKS:
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(CHECK_S)
        used, now = _used(), time.monotonic()
        calm = calm + 1 if used - before <= CALM * (now - since) else 0
        before, since = used, now
    return True


def _used() -> float:
    own = os.getpid()
    return cpu_seconds(pid for pid in tree(own) if pid != own)
