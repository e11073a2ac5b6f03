"""The measurements of `python -m benchmarks`: figures with limits, and tables of many runs."""

import importlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.app.measurements import measure as measure_app
from benchmarks.figure import Figure
from benchmarks.tables.scope import Conclusion, Scope, Tell


@dataclass(frozen=True)
class Measurement:
    """A measurement that gives figures. module: the module of its `measure`; empty for measurements of the app."""

    module: str
    sentence: str


MEASUREMENTS = {
    "first-paint": Measurement("", "From the start of the program to its first screen."),
    "keystroke": Measurement("", "From a key to what it draws, in a kernel of 1000 lines."),
    "loop-lag": Measurement("", "How late the app's event loop wakes up while a kernel runs."),
    "tokens": Measurement("", "The same while a model writes 1000 tokens a second in a duel."),
    "save": Measurement("benchmarks.save_to_verdict", "From a save to its verdict, on CPU ranks."),
    "save-gpu": Measurement("benchmarks.save_to_gpu_verdict", "From a save to its verdict, on GPUs."),
    "jail": Measurement("benchmarks.jail_cost", "What the jail costs a run."),
    "soak": Measurement("benchmarks.soak", "100 runs in a row: does anything grow?"),
    "sweep-cost": Measurement("benchmarks.sweep_cost", "Time and memory of a result in a long sweep."),
}
LONG = {"soak", "save-gpu", "sweep-cost"}
"""Measurements that take more than some minutes or need GPUs. They are not part of `all`."""


@dataclass(frozen=True)
class RunTable:
    """A table with a row for each of many runs. options: the fields of `Scope` that narrow it down.

    device: the only device that it is for; None if it is for several.
    """

    module: str
    sentence: str
    options: frozenset[str]
    device: str | None = None


TABLES = {
    "clock": RunTable(
        "benchmarks.tables.clock",
        "Times of the judge against a plain loop of our own.",
        frozenset({"problems", "world", "preset", "device"}),
    ),
    "ab": RunTable(
        "benchmarks.tables.added_cost",
        "Kernels with a known extra cost: does the interval contain it?",
        frozenset({"problems", "world", "preset", "device"}),
    ),
    "precision": RunTable(
        "benchmarks.tables.precision",
        "How precise the clock is after so many seconds of timing.",
        frozenset({"problems", "world", "preset", "device"}),
    ),
    "aa": RunTable(
        "benchmarks.tables.same_code",
        "Identical code against itself, on CPU ranks.",
        frozenset({"problems", "world", "preset", "loaded"}),
        "cpu",
    ),
    "aa-gpu": RunTable(
        "benchmarks.tables.same_code",
        "Identical code against itself, on GPUs.",
        frozenset({"problems", "world", "preset"}),
        "cuda",
    ),
    "collectives": RunTable(
        "benchmarks.tables.gpu_tables", "House kernels for collectives against NCCL.", frozenset({"problems", "world"})
    ),
    "backends": RunTable(
        "benchmarks.tables.gpu_tables",
        "The kit's examples over each backend, beside house kernels.",
        frozenset({"world", "preset"}),
    ),
    "graphs": RunTable(
        "benchmarks.tables.gpu_tables",
        "Baselines against themselves in a CUDA graph.",
        frozenset({"problems", "world"}),
    ),
    "kit-soak": RunTable(
        "benchmarks.tables.kit_soak",
        "Blocks of the kit, called very often with every result compared.",
        frozenset({"blocks", "world", "device"}),
    ),
    "clock-model": RunTable(
        "benchmarks.clock_model.table", "The interval on simulated runs, without processes.", frozenset()
    ),
}


async def measure(name: str, repetitions: int | None) -> list[Figure]:
    """Runs one measurement. repetitions: None: the measurement's own number.

    Raises:
        ArenaError: it cannot be made here.
    """
    module = MEASUREMENTS[name].module
    run = importlib.import_module(module).measure if module else partial(measure_app, name)
    figures: list[Figure] = await run(repetitions)
    return figures


async def tabulate(name: str, scope: Scope, tell: Tell, rows: list[Any]) -> None:
    """Makes the runs of one table. Each row is added to `rows`, and its line passed to `tell`, as soon as it is made.

    Raises:
        ArenaError: it cannot be made or continued here.
    """
    table = TABLES[name]
    scope = replace(scope, table=name, device=table.device or scope.device)
    await importlib.import_module(table.module).measure(scope, tell, rows)


def conclude(name: str, rows: list[Any]) -> Conclusion:
    """The conclusion from the rows of a table, which may be incomplete after an interrupt."""
    conclusion: Conclusion = importlib.import_module(TABLES[name].module).conclude(rows)
    return conclusion
