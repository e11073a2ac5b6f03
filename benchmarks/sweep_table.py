"""`python -m benchmarks results`: the newest result of each problem and player in journals of sweeps, as one table."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

import click

from arena.board.results import results
from arena.cli.options import json_option
from arena.cli.output import print_json, print_line
from arena.errors import UsageError, why
from arena.runs.table import Column, TextTable
from arena.sweep.journal import JournalDamaged
from arena.sweep.records import CellResult
from arena.workspace.baseline_variants import GRAPH, WINDOWS
from sandbox.protocol.events import Interval, Microseconds
from sandbox.timing.interval import outcome


@click.command()
@click.argument("journals", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@json_option
def command(journals: tuple[Path, ...], as_json: bool) -> None:
    """The newest result of each problem and player in these JOURNALS of sweeps, with times, intervals and bounds.

    Sweeps of several sessions on the same machine become one table.
    """
    found = newest(journals)
    if as_json:
        print_json(found)
        return
    for line in (*TABLE.lines(found), "", summary(found)):
        print_line(line)


def newest(journals: Sequence[Path]) -> list[CellResult]:
    """By problem and player, in the order of problems. Raises UsageError for what is no journal of a sweep."""
    found: dict[tuple[int, str, str, int, str], CellResult] = {}
    for path in journals:
        try:
            for result in results(path):
                setting = result.cell.setting
                key = (result.problem_id, result.cell.player, setting.preset, setting.world, setting.dtype)
                if key not in found or result.at >= found[key].at:
                    found[key] = result
        except JournalDamaged as error:
            raise UsageError(error.message, error.advice) from None
        except OSError as error:
            raise UsageError(f"cannot read {path}: {why(error)}") from None
    return [found[key] for key in sorted(found)]


def summary(found: Sequence[CellResult]) -> str:
    """Counts, and the geometric mean of the end-to-end speedups."""
    passed = [result for result in found if result.passed]
    speedups = [speed.median for result in passed if (speed := _speed(result, "call")) is not None]
    faster = sum(result.report is not None and result.report.outcome == "faster" for result in passed)
    parts = [f"{len(found)} results", f"{len(passed)} PASS", f"{faster} faster"]
    if speedups:
        parts.append(f"geometric mean {geometric_mean(speedups):.2f}")
    return ", ".join(parts)


def _speed(result: CellResult, clock: str) -> Interval | None:
    return getattr(result.report.speedup, clock) if result.report is not None and result.report.speedup else None


def _speed_words(result: CellResult, clock: str) -> str:
    speed = _speed(result, clock)
    return "–" if speed is None else f"{speed.median:.2f} [{speed.low:.2f}, {speed.high:.2f}] {outcome(speed)}"


def _call_us(times: Microseconds | None) -> str:
    return "–" if times is None or times.call is None else f"{times.call:.1f}"


def _over(result: CellResult, name: str) -> str:
    """A form of the baseline's time over the kernel's."""
    report = result.report
    other = report.beside.get(name) if report is not None else None
    mine = report.contender_us if report is not None else None
    if other is None or mine is None or not other.call or not mine.call:
        return "–"
    return f"{other.call / mine.call:.2f}"


def _bound(result: CellResult) -> str:
    roofline = result.report.roofline if result.report is not None else None
    return "–" if roofline is None or not math.isfinite(roofline.percent) else f"{roofline.percent:.0f} %"


TABLE = TextTable[CellResult](
    (
        Column("problem", lambda result: f"{result.problem_id:02d} {result.cell.slug}"[:38]),
        Column("player", lambda result: result.cell.player),
        Column("size", lambda result: result.cell.setting.preset),
        Column("W", lambda result: str(result.cell.setting.world), right=True),
        Column("dtype", lambda result: result.cell.setting.dtype),
        Column("verdict", lambda result: result.verdict),
        Column("A µs", lambda result: _call_us(result.report.baseline_us if result.report else None), right=True),
        Column("µs", lambda result: _call_us(result.report.contender_us if result.report else None), right=True),
        Column("speedup end-to-end", lambda result: _speed_words(result, "call")),
        Column("device time", lambda result: _speed_words(result, "device")),
        Column("over graph", lambda result: _over(result, GRAPH), right=True),
        Column("over windows", lambda result: _over(result, WINDOWS), right=True),
        Column("of bound", _bound, right=True),
        Column("s", lambda result: f"{result.seconds:.1f}", right=True),
    )
)
"""A is the baseline as called. Intervals: 99 %."""
