"""Measurements of the app run in a process of their own: the engine does not know its display."""

import asyncio
import sys

import msgspec

from arena.errors import MachineError

GIVE_UP_S = 300.0


async def screen_figures(name: str, repetitions: int | None) -> dict[str, float]:
    """What `python -m screens.measure NAME --json` found: figures by name.

    Raises:
        MachineError: it failed, or said nothing that is an object of numbers.
    """
    extra = ["--repetitions", str(repetitions)] if repetitions else []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "screens.measure", name, "--json", *extra),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(GIVE_UP_S):
            stdout, stderr = await process.communicate()
    except TimeoutError:
        raise MachineError(
            f"{name} was not measured within {GIVE_UP_S:.0f} s", "try again on a quiet machine"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        words = stderr.decode(errors="replace").strip().splitlines()
        raise MachineError(f"{name} could not be measured: {words[-1] if words else 'no reason given'}")
    try:
        return msgspec.json.decode(stdout, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise MachineError(f"{name}: {error}") from None
