"""Ends a command on SIGINT, SIGTERM and SIGHUP: cancels the run, leaves no process, exit code 130."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import TypeVar

from sandbox.protocol.verdict import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


def run_interruptibly(main: Coroutine[object, object, T]) -> T:
    """Runs `main` to its end in a new event loop and returns its result.

    Raises:
        KeyboardInterrupt: a signal arrived; `main` was cancelled and has cleaned up.
    """

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(main)
        signalled = False

        def interrupt() -> None:
            nonlocal signalled
            if signalled:  # exit at the second signal: the referee ends its worlds when its pipe closes
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
