"""Measurements of what pkb-arena promises, one module each, offered by `pkb-arena doctor --bench`."""

import importlib

from arena.bench.figure import Figure
from arena.bench.row import Row, Scope, Tell
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
TABLES = {
    "aa-gpu": "arena.bench.same_code_on_gpus",
    "collectives": "arena.bench.collectives",
    "graphs": "arena.bench.graphs",
}
"""Many runs on GPUs, a row each: only when asked for by name."""
LONG = {"soak", "save-gpu"}
"""Takes more than some minutes, or needs GPUs: only when asked for by name."""


async def measure(name: str, paths: Paths, repetitions: int | None) -> list[Figure]:
    """Runs one measurement; `repetitions` None takes the measurement's own number.

    Raises:
        ArenaError: it could not be made here.
    """
    figures: list[Figure] = await importlib.import_module(MEASUREMENTS[name]).measure(paths, repetitions)
    return figures


async def tabulate(name: str, scope: Scope, tell: Tell) -> list[Row]:
    """Makes the runs of one table; `tell` gets every line as soon as it is there.

    Raises:
        ArenaError: it could not be made here.
    """
    rows: list[Row] = await importlib.import_module(TABLES[name]).measure(scope, tell)
    return rows
