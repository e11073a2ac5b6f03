"""`python -m benchmarks results`: the newest result of each problem and player in journals of sweeps, as one table."""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

import click
import msgspec

from arena.board.scorecard import results
from arena.cli.options import json_option
from arena.cli.output import print_json, print_lines
from arena.errors import UsageError
from arena.sweep.journal import JournalDamaged
from arena.sweep.records import CellResult
from arena.words.headline import by_clock
from arena.words.table import Column, TextTable
from arena.workspace.named_kernels import GRAPH, VARIANTS, WINDOWS
from benchmarks.tables.gpu_runs import microseconds
from sandbox.protocol.events import Interval
from sandbox.timing.interval import outcome

Place = tuple[int, str, int, str]
"""Problem, preset, world and dtype."""
EXPECTED = Path(__file__).with_name("expected_speedups.toml")


class Row(msgspec.Struct, frozen=True):
    """A result with other figures of its problem."""

    result: CellResult
    variants: dict[str, float]
    """Microseconds of a call of the baseline's variants in the same setting, end-to-end."""
    expected: float | None
    """End-to-end speedup that was expected of a house kernel."""


@click.command()
@click.argument("journals", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@json_option
def command(journals: tuple[Path, ...], as_json: bool) -> None:
    """The newest result of each problem and player in these JOURNALS of sweeps, with times, intervals and bounds.

    Sweeps of several sessions on the same machine become one table. Results of the players baseline-graph and baseline-windows
    become columns beside those of other players.
    """
    found = newest(journals)
    if as_json:
        print_json(found)
        return
    print_lines([*TABLE.lines(rows(found)), "", *summary(found)])


def newest(journals: Sequence[Path]) -> list[CellResult]:
    """The newest result of each problem, player and setting, in the order of problems.

    Raises UsageError for a file that is not a journal of a sweep.
    """
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
    return [found[key] for key in sorted(found)]


def rows(found: Sequence[CellResult]) -> list[Row]:
    """A row for each result.

    Results of a baseline variant have none if another player has a result in the same setting.
    """
    measured: dict[Place, dict[str, float]] = {}
    for result in found:
        times = result.report.contender_us if result.report is not None and result.passed else None
        if result.cell.player in VARIANTS and times is not None and times.call:
            measured.setdefault(_place(result), {})[result.cell.player] = times.call
    others = {_place(result) for result in found if result.cell.player not in VARIANTS}
    expected = tomllib.loads(EXPECTED.read_text())
    made = []
    for result in found:
        if result.cell.player in VARIANTS and _place(result) in others:
            continue
        beside = result.report.beside if result.report is not None else {}
        known = {word: times.call for word, times in beside.items() if times.call}
        presets = dict(zip(("paper", "production"), expected.get(result.cell.slug, ()), strict=False))
        made.append(Row(result, known | measured.get(_place(result), {}), presets.get(result.cell.setting.preset)))
    return made


def _place(result: CellResult) -> Place:
    setting = result.cell.setting
    return result.problem_id, setting.preset, setting.world, setting.dtype


def summary(found: Sequence[CellResult]) -> list[str]:
    """For each player: counts, and the geometric mean of the end-to-end speedups."""
    lines = []
    for player in dict.fromkeys(result.cell.player for result in found):
        mine = [result for result in found if result.cell.player == player]
        passed = [result for result in mine if result.passed]
        speedups = [speed.median for result in passed if (speed := _speed(result, "call")) is not None]
        faster = sum(result.report is not None and result.report.outcome == "faster" for result in passed)
        parts = [f"{player}: {len(mine)} results", f"{len(passed)} PASS", f"{faster} faster"]
        if speedups:
            parts.append(f"geometric mean {geometric_mean(speedups):.2f}")
        lines.append(", ".join(parts))
    return lines


def _speed(result: CellResult, clock: str) -> Interval | None:
    return by_clock(result.report.speedup, clock) if result.report is not None else None


def _speed_words(row: Row, clock: str) -> str:
    speed = _speed(row.result, clock)
    return "–" if speed is None else f"{speed.median:.2f} [{speed.low:.2f}, {speed.high:.2f}] {outcome(speed)}"


def _us(row: Row, side: str, clock: str) -> str:
    return microseconds(getattr(row.result.report, side, None), clock)


def _over(row: Row, name: str) -> str:
    """The time of a baseline variant over the kernel's."""
    report = row.result.report
    mine = report.contender_us if report is not None else None
    if name not in row.variants or mine is None or not mine.call:
        return "–"
    return f"{row.variants[name] / mine.call:.2f}"


def _bound(row: Row) -> str:
    roofline = row.result.report.roofline if row.result.report is not None else None
    return "–" if roofline is None or not math.isfinite(roofline.percent) else f"{roofline.percent:.0f} %"


TABLE = TextTable[Row](
    (
        Column("problem", lambda row: f"{row.result.problem_id:02d} {row.result.cell.slug}"[:38]),
        Column("player", lambda row: row.result.cell.player),
        Column("size", lambda row: row.result.cell.setting.preset),
        Column("W", lambda row: str(row.result.cell.setting.world), right=True),
        Column("dtype", lambda row: row.result.cell.setting.dtype),
        Column("verdict", lambda row: row.result.verdict),
        Column("A µs", lambda row: _us(row, "baseline_us", "call"), right=True),
        Column("µs", lambda row: _us(row, "contender_us", "call"), right=True),
        Column("speedup end-to-end", lambda row: _speed_words(row, "call")),
        Column("A device", lambda row: _us(row, "baseline_us", "device"), right=True),
        Column("device", lambda row: _us(row, "contender_us", "device"), right=True),
        Column("device time", lambda row: _speed_words(row, "device")),
        Column("over graph", lambda row: _over(row, GRAPH), right=True),
        Column("over windows", lambda row: _over(row, WINDOWS), right=True),
        Column("of bound", _bound, right=True),
        Column("expected", lambda row: "–" if row.expected is None else f"{row.expected:.2f}", right=True),
        Column("s", lambda row: f"{row.result.seconds:.1f}", right=True),
    )
)
"""A is the baseline as called. Times: microseconds. Intervals: 99 %. Expected: see expected_speedups.toml."""
