"""Busy processes, one for every core: the load under which some measurements are repeated.

python -m benchmarks.busy_cores        runs one of them
"""

import asyncio
import os
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

from arena.paths import ROOT, module_command, module_environment
from sandbox.machine.processes import die_with_parent

END_S = 5.0


@asynccontextmanager
async def busy_cores() -> AsyncIterator[None]:
    """Runs a busy process for every core of this process. They are killed at the end, or with this process."""
    running = []
    try:
        for _ in os.sched_getaffinity(0):
            running.append(
                await asyncio.create_subprocess_exec(
                    *module_command("benchmarks.busy_cores"),
                    stdin=DEVNULL,
                    cwd=ROOT,
                    env=module_environment(),
                    start_new_session=True,  # its own group for the scheduler, like another program
                )
            )
        yield
    finally:
        for process in running:
            with suppress(ProcessLookupError):
                process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                for process in running:
                    await process.wait()


def load(busy: bool) -> AbstractAsyncContextManager[None]:
    """`busy_cores` if `busy`, else a context that does nothing."""
    return busy_cores() if busy else nullcontext()


if __name__ == "__main__":
    die_with_parent()
    while True:
        pass
