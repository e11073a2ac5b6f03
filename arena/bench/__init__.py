"""Measurements of what pkb-arena promises, one module each, offered by `pkb-arena doctor --bench`."""

import importlib

from arena.bench.figure import Figure
from arena.paths import Paths

MEASUREMENTS = {
    "save": "arena.bench.save_to_verdict",
    "save-gpu": "arena.bench.save_to_gpu_verdict",
    "aa": "arena.bench.same_code",
    "first-paint": "arena.bench.first_paint",
    "loop-lag": "arena.bench.loop_lag",
    "keystroke": "arena.bench.keystroke",
    "tokens": "arena.bench.tokens",
    "jail": "arena.bench.jail_cost",
    "soak": "arena.bench.soak",
}
LONG = {"soak", "save-gpu"}
"""Takes more than some minutes, or needs GPUs: only when asked for by name."""


async def measure(name: str, paths: Paths, repetitions: int | None) -> list[Figure]:
    """Runs one measurement; `repetitions` None takes the measurement's own number.

    Raises:
        ArenaError: it could not be made here.
    """
    figures: list[Figure] = await importlib.import_module(MEASUREMENTS[name]).measure(paths, repetitions)
    return figures
