"""Orderly end of a command on SIGINT, SIGTERM and SIGHUP: the run is cancelled, no process is left, exit code 130."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import TypeVar

from sandbox.protocol.verdict import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


def run_interruptibly(main: Coroutine[object, object, T]) -> T:
    """Runs `main` to its end in a new event loop.

    Raises:
        KeyboardInterrupt: a signal came; `main` was cancelled and has cleaned up.
    """

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(main)
        signalled = False

        def interrupt() -> None:
            nonlocal signalled
            if signalled:  # the second one means now: the referee sees its pipe close and ends its worlds itself
                os._exit(ExitCode.INTERRUPTED)
            signalled = True
            task.cancel()

        for number in SIGNALS:
            loop.add_signal_handler(number, interrupt)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return asyncio.run(watched())
