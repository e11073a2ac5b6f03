"""Runs of many kernels against the baseline as called; each row is printed as soon as it is made."""

from collections.abc import Iterable, Mapping, Sequence

from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge
from arena.setting_choice import Choice
from arena.settings import Settings
from arena.words.table import TextTable
from benchmarks.rows import PlannedRun, RunRow, judged_row, require_harness
from benchmarks.run_tables import KERNEL_TABLE
from benchmarks.tables.scope import Conclusion, Tell
from problems.catalogue import load_catalogue
from problems.specification import Problem


def on_gpus(
    problem: Problem,
    kernel: str,
    world: int | None,
    preset: str = "production",
    sizes: Mapping[str, int] | None = None,
    size: str = "",
) -> PlannedRun:
    """A run on `world` GPUs; None: on all of them. size: the size in words."""
    choice = Choice(preset=preset, world=world, device="cuda", sizes=sizes or {})
    return PlannedRun(problem, kernel, choice, size)


async def measured(planned: Iterable[PlannedRun], rounds: int, tell: Tell, rows: list[RunRow]) -> None:
    """`rows_of` in a temporary engine."""
    async with temporary_engine() as engine:
        await rows_of(engine, planned, rounds, tell, rows)


async def rows_of(
    judge: Judge,
    planned: Iterable[PlannedRun],
    rounds: int | None,
    tell: Tell,
    rows: list[RunRow],
    table: TextTable[RunRow] = KERNEL_TABLE,
) -> None:
    """Makes the runs one after another; adds each row to `rows` and passes its line to `tell`, under a header.

    rounds: of each run; None for the default budget.

    Raises:
        MachineError: there are not enough GPUs, or the harness failed three times in a row.
    """
    catalogue = load_catalogue()
    for run in planned:
        rows.append(await judged_row(judge, run, Settings(), catalogue, rounds))
        if len(rows) == 1:
            tell(table.header)
        tell(table.line(rows[-1]))
        require_harness(rows)


def conclude(rows: Sequence[RunRow]) -> Conclusion:
    """No lines, because the rows are complete. Sound: no row has a fault."""
    return Conclusion([], not any(row.fault for row in rows))
