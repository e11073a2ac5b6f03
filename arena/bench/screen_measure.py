"""Measurements of the app, made in a process of their own: the engine does not know its display."""

import asyncio
import signal
from contextlib import suppress

import msgspec

from arena.bench.figure import Figure
from arena.errors import MachineError
from arena.own_modules import ROOT, module_command, module_environment

GIVE_UP_S = 600.0
END_S = 15.0
"""For closing the app that is being measured."""


class Milliseconds(msgspec.Struct):
    """What `python -m screens.measure NAME --json` prints, as far as it is needed here."""

    median_ms: float
    p99_ms: float
    max_ms: float
    count: int
    bare_median_ms: float | None = None
    """A Textual app of one word, in the same run."""


async def screen_figure(
    name: str, repetitions: int | None, words: str, promised: str, limit_ms: float
) -> list[Figure]:
    """One measurement as a figure; `promised` is "median" or "p99".

    Raises:
        MachineError: it failed, or said nothing that can be read.
    """
    found = await _measured(name, repetitions)
    value = found.p99_ms if promised == "p99" else found.median_ms
    others = f"median {found.median_ms:.1f}, p99 {found.p99_ms:.1f}, slowest {found.max_ms:.1f}"
    if found.bare_median_ms is not None:
        others += f"; a Textual app of one word {found.bare_median_ms:.0f}: {value / found.bare_median_ms:.2f} times"
    return [Figure(f"{words} ({promised})", value, "ms", limit_ms, f"of {found.count}: {others}")]


async def _measured(name: str, repetitions: int | None) -> Milliseconds:
    extra = ["--repetitions", str(repetitions)] if repetitions else []
    process = await asyncio.create_subprocess_exec(
        *module_command("screens.measure", name, "--json", *extra),
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
        raise MachineError(
            f"{name} took more than {GIVE_UP_S:.0f} s", "try again on a quiet machine"
        ) from None
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
    """Interrupts a measurement so that it closes its app; kills it when that takes too long."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
    with suppress(ProcessLookupError):
        process.kill()
