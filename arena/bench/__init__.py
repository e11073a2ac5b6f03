"""Measurements of what pkb-arena promises, one module each, offered by `pkb-arena doctor --bench`.

Those of the app come from the display (`arena/cli/display.py`).
"""

import importlib
from dataclasses import dataclass
from typing import Any

from arena.bench.figure import Figure
from arena.bench.tables.scope import Conclusion, Scope, Tell
from arena.paths import Paths

MEASUREMENTS = {
    "save": "arena.bench.save_to_verdict",
    "save-gpu": "arena.bench.save_to_gpu_verdict",
    "jail": "arena.bench.jail_cost",
    "soak": "arena.bench.soak",
    "campaign": "arena.bench.campaign_cost",
}
LONG = {"soak", "save-gpu", "campaign"}
"""Takes more than some minutes, or needs GPUs: only when asked for by name."""


@dataclass(frozen=True)
class RunTable:
    """A row each of many runs: only when asked for by name. options: what narrows it down, fields of `Scope`."""

    module: str
    options: frozenset[str]


TABLES = {
    "clock": RunTable("arena.bench.tables.clock", frozenset({"problems", "world", "preset", "device"})),
    "ab": RunTable("arena.bench.tables.added_cost", frozenset({"problems", "world", "preset", "device"})),
    "aa": RunTable(
        "arena.bench.tables.same_code_on_cpus", frozenset({"problems", "world", "preset", "loaded"})
    ),
    "aa-gpu": RunTable("arena.bench.tables.same_code_on_gpus", frozenset({"problems", "world", "preset"})),
    "collectives": RunTable("arena.bench.tables.collectives", frozenset({"problems", "world"})),
    "graphs": RunTable("arena.bench.tables.graphs", frozenset({"problems", "world"})),
    "kit-soak": RunTable("arena.bench.tables.kit_soak", frozenset({"world", "device"})),
    "clock-model": RunTable("arena.bench.clock_model.table", frozenset()),
}


async def measure(name: str, paths: Paths, repetitions: int | None) -> list[Figure]:
    """Runs one measurement; `repetitions` None takes the measurement's own number.

    Raises:
        ArenaError: it could not be made here.
    """
    figures: list[Figure] = await importlib.import_module(MEASUREMENTS[name]).measure(paths, repetitions)
    return figures


async def tabulate(name: str, scope: Scope, tell: Tell, rows: list[Any]) -> None:
    """Makes the runs of one table. Each row is added to `rows`, and its line told, as soon as it is there.

    Raises:
        ArenaError: it could not be made here, or no further.
    """
    await importlib.import_module(TABLES[name].module).measure(scope, tell, rows)


def conclude(name: str, rows: list[Any]) -> Conclusion:
    """What the rows of a table come to, also when it was interrupted."""
    conclusion: Conclusion = importlib.import_module(TABLES[name].module).conclude(rows)
    return conclusion
