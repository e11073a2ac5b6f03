"""Waits for what must come true, however busy the machine is."""

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable

import psutil

PATIENCE_S = 200.0
"""Seconds of every wait in the tests: less than pytest's timeout of a test, more than a busy machine needs."""


def eventually(condition: Callable[[], object]) -> None:
    """Waits until the condition is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, _never(condition)
        time.sleep(0.01)


async def comes_true(condition: Callable[[], object]) -> None:
    """As `eventually`. Other tasks run meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, _never(condition)
        await asyncio.sleep(0.01)


def _never(condition: Callable[[], object]) -> str:
    return f"never came true: {inspect.getsource(condition).strip()}"


def all_end(processes: Iterable[psutil.Process]) -> None:
    """Waits until every process has ended, or is a zombie."""
    eventually(lambda: not any(map(_runs, processes)))


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two calls
        return False
