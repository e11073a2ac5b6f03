"""Limits of the app's speed, compared with measurements that run in processes of their own."""

import asyncio
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import msgspec

from arena.errors import MachineError
from arena.paths import ROOT, module_command, module_environment
from benchmarks.figure import Figure

GIVE_UP_S = 600.0
END_S = 15.0
"""Time limit in seconds to close the app that is measured."""


class Milliseconds(msgspec.Struct):
    """The output of `python -m benchmarks.app.measurements NAME`, with the fields that are used here."""

    median_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    count: int
    bare_median_ms: float | None = None
    """Median of a Textual app of one word, in the same run."""
    problems_median_ms: float | None = None
    """Median from the start to the list of problems."""


@dataclass(frozen=True)
class Promise:
    """One figure with its limit."""

    words: str
    promised: Literal["median", "p95", "p99"]
    limit_ms: float


PROMISES = {
    "first-paint": Promise("first paint", "median", 300.0),
    "loop-lag": Promise("event loop late", "p99", 16.0),
    "keystroke": Promise("key to screen", "p95", 20.0),
    "tokens": Promise("event loop late", "p99", 50.0),
}
"""By name of a measurement in `benchmarks.app.measurements`."""
TIMES_BARE = 1.15
"""Limit for first paint as a multiple of that of a Textual app of one word. It does not depend on the machine's
speed."""


async def measure(name: str, repetitions: int | None) -> list[Figure]:
    """One measurement as figures. repetitions: None: the measurement's own number (seconds, for tokens).

    Raises:
        MachineError: it failed, or its output cannot be read.
    """
    promise = PROMISES[name]
    found = await _measured(name, repetitions)
    value = {"median": found.median_ms, "p95": found.p95_ms, "p99": found.p99_ms}[promise.promised]
    others = f"median {found.median_ms:.1f}, p95 {found.p95_ms:.1f}, p99 {found.p99_ms:.1f}, slowest {found.max_ms:.1f}"
    figures = [
        Figure(f"{promise.words} ({promise.promised})", value, "ms", promise.limit_ms, f"of {found.count}: {others}")
    ]
    if found.bare_median_ms is not None:
        bare = f"the same of a Textual app of one word, in turns: {found.bare_median_ms:.0f} ms"
        figures.append(Figure("  times bare Textual", value / found.bare_median_ms, "", TIMES_BARE, bare))
    if found.problems_median_ms is not None:
        figures.append(Figure("  list of problems (median)", found.problems_median_ms, "ms"))
    return figures


async def _measured(name: str, repetitions: int | None) -> Milliseconds:
    process = await asyncio.create_subprocess_exec(
        *module_command("benchmarks.app.measurements", name, str(repetitions or "")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=module_environment(),
    )
    try:
        async with asyncio.timeout(GIVE_UP_S):
            stdout, stderr = await process.communicate()
    except TimeoutError:
        raise MachineError(f"{name} took more than {GIVE_UP_S:.0f} s", "try again on a quiet machine") from None
    finally:
        if process.returncode is None:
            await _end(process)
    if process.returncode != 0:
        said = stderr.decode(errors="replace").strip().splitlines()
        raise MachineError(f"{name} could not be measured: {said[-1] if said else 'no reason given'}")
    try:
        return msgspec.json.decode(stdout, type=Milliseconds)
    except msgspec.MsgspecError as error:
        raise MachineError(f"{name} could not be read: {error}") from None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupts a measurement so that it closes its app; kills it if that takes too long."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
    with suppress(ProcessLookupError):
        process.kill()
