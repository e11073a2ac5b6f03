"""Runs of many kernels against the baseline as called; each row is printed as soon as it is made."""

from collections.abc import Iterable, Sequence

from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge
from arena.settings import Settings
from arena.words.headline import by_clock
from arena.words.table import Column, TextTable
from benchmarks.rows import PlannedRun, RunRow, judged_row, require_harness
from benchmarks.tables.scope import Conclusion, Tell
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Interval, Microseconds
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import half_width, outcome


def _name(row: RunRow) -> str:
    return f"{row.id:02d} {row.problem}"


def microseconds(times: Microseconds | None, clock: str) -> str:
    value = by_clock(times, clock)
    return "–" if value is None else f"{value:.1f}"


def _with_interval(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.median:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def failure(row: RunRow) -> str:
    return row.detail.splitlines()[0][:110] if row.detail and row.verdict != Verdict.PASS else ""


KERNEL_TABLE = TextTable[RunRow](
    (
        Column("problem", lambda row: _name(row)[:28], 28),
        Column("size", lambda row: row.size, 10, right=True),
        Column("kernel", lambda row: row.kernel, 27),
        Column("verdict", lambda row: row.verdict, 14),
        Column("A call", lambda row: microseconds(row.baseline_us, "call"), 9, right=True),
        Column("A device", lambda row: microseconds(row.baseline_us, "device"), 9, right=True),
        Column("call", lambda row: microseconds(row.kernel_us, "call"), 9, right=True),
        Column("device", lambda row: microseconds(row.kernel_us, "device"), 9, right=True),
        Column("speedup, call", lambda row: _with_interval(row.speedup.call if row.speedup else None), 19),
        Column("speedup, device", lambda row: _with_interval(row.speedup.device if row.speedup else None), 19),
        Column("", failure),
    )
)
"""Kernels against the baseline. Times in microseconds; A is the baseline as called."""


def _by_clock(row: RunRow, clock: str) -> str:
    """ "0.998 [0.981, 1.015] ±1.7 % even"; with "!" after it if 1 is outside the interval."""
    interval = getattr(row.speedup, clock) if row.speedup else None
    if interval is None:
        return "–"
    mark = "" if interval.low <= 1.0 <= interval.high else " !"
    ends = f"{interval.median:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
    return f"{ends} ±{100 * half_width(interval):.3g} % {outcome(interval)}{mark}"


SAME_CODE_TABLE = TextTable[RunRow](
    (
        Column("problem", lambda row: _name(row)[:28], 28),
        Column("size", lambda row: row.preset, 10, right=True),
        Column("W", lambda row: str(row.world), 2, right=True),
        Column("verdict", lambda row: row.verdict, 7),
        Column("outcome", lambda row: row.outcome, 9),
        Column("call µs", lambda row: microseconds(row.baseline_us, "call"), 9, right=True),
        Column("device", lambda row: microseconds(row.baseline_us, "device"), 9, right=True),
        Column("end-to-end", lambda row: _by_clock(row, "call"), 42),
        Column("device time", lambda row: _by_clock(row, "device"), 42),
        Column("pairs", lambda row: f"{row.pairs.call}+{row.pairs.device}", 7, right=True),
        Column("calls", lambda row: f"{row.calls.call}+{row.calls.device}", 7, right=True),
        Column("s", lambda row: f"{row.seconds:.1f}", 5, right=True),
        Column("", failure),
    )
)
"""Baselines against themselves by both clocks. Pairs of batches and calls of a batch: calls + device. "!": 1 is not inside."""


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
