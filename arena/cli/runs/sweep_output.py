"""The output of `sweep` on stdout: the table of baselines against themselves, or the scores of a sweep."""

from pathlib import Path
from typing import Any

import msgspec

from arena.board.results import outcomes, results
from arena.board.scorecard import ALL, Scorecard, scorecards
from arena.board.tables import mean_words, share_words
from arena.cli.diagnostics import complain
from arena.cli.output import print_json, print_line
from arena.runs.headline import WHERE, by_clock
from arena.runs.results import RunReport
from arena.runs.rows import REFUSED, PlannedRun, RunRow, unfinished_row
from arena.runs.table import BASELINE_TABLE, Column, TextTable
from arena.sweep.plan import SweepPlan
from arena.sweep.progress import SweepProgress
from arena.sweep.records import Cell, CellResult
from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import Verdict


class BaselineRows:
    """Collects the rows of the table, also of results that an earlier session made."""

    def __init__(self, plan: SweepPlan) -> None:
        self._plan = plan
        self._rows: dict[str, RunRow] = {}
        self._earlier: set[str] = set()

    def judged(self, result: CellResult) -> None:
        """Takes a result."""
        self._rows[result.cell.slug] = _row(result)

    def skipped(self, cell: Cell) -> None:
        """Takes note of a cell whose result is in the journal."""
        self._earlier.add(cell.digest)

    def left_out(self, problem: Problem, why: str) -> None:
        """Takes a problem that cannot be run in this setting."""
        planned = PlannedRun(problem, BASELINE, self._plan.choice)
        self._rows[problem.slug] = unfinished_row(planned, REFUSED, why)

    def read_earlier(self, path: Path) -> None:
        """Adds the rows of skipped cells from the journal."""
        for result in results(path) if self._earlier else ():
            if result.cell.digest in self._earlier and result.final:
                self._rows[result.cell.slug] = _row(result)

    @property
    def rows(self) -> list[RunRow]:
        """In the order of the plan."""
        return [self._rows[slug] for slug in self._plan.problems if slug in self._rows]

    def sound(self) -> bool:
        """Every baseline passed, and none differs from itself. Names those that do on stderr."""
        different = [row for row in self.rows if row.differs_from_itself]
        for row in different:
            ratio = by_clock(row.speedup, row.clock)
            figures = f": {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else ""
            where = f" {WHERE[row.clock]}" if row.clock else ""
            complain(
                f"the baseline of {row.id} {row.problem} is called {row.outcome} than itself{where}{figures}",
                "run it again on a quiet machine; if it repeats, speedups measured here are not to be trusted",
            )
        return not different and all(row.verdict == Verdict.PASS for row in self.rows)

    def show(self, as_json: bool) -> None:
        """Prints the rows; nothing where there are none."""
        if as_json and self._rows:
            print_json(list(map(_object, self.rows)))
        elif self._rows:
            for line in BASELINE_TABLE.lines(self.rows):
                print_line(line)


def _row(result: CellResult) -> RunRow:
    setting, report = result.cell.setting, result.report
    row = RunRow(
        id=result.problem_id,
        problem=result.cell.slug,
        size=setting.preset,
        sizes=setting.sizes,
        world=setting.world,
        dtype=setting.dtype,
        kernel=result.cell.player,
        verdict=result.verdict,
        detail=result.detail,
        seconds=round(result.seconds, 2),
        preset=setting.preset,
        device=setting.device,
    )
    return row if report is None else _with_report(row, report)


def _with_report(row: RunRow, report: RunReport) -> RunRow:
    return msgspec.structs.replace(
        row,
        outcome=report.outcome,
        clock=report.clock,
        told=report.told,
        rounds=report.rounds,
        baseline_us=report.baseline_us,
        kernel_us=report.contender_us,
        speedup=report.speedup,
        roofline=report.roofline,
        text=report.failure.text if report.failure else "",
    )


def _object(row: RunRow) -> dict[str, Any]:
    """A row of `sweep --json`. Fields are added, never renamed."""
    base, speedup, roofline = row.baseline_us, row.speedup, row.roofline
    return {
        "id": row.id,
        "problem": row.problem,
        "world": row.world or None,
        "dtype": row.dtype or None,
        "verdict": row.verdict,
        "detail": row.detail,
        "outcome": row.outcome,
        "clock": row.clock,
        "told": row.told,
        "call_us": base.call if base else None,
        "device_us": base.device if base else None,
        "call": _bounds(speedup.call) if speedup else None,
        "device": _bounds(speedup.device) if speedup else None,
        "percent": roofline.percent if roofline else None,
        "limiter": roofline.limiter if roofline else None,
        "text": row.text,
        "seconds": row.seconds,
    }


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.median, interval.high]


def print_sweep(path: Path, progress: SweepProgress, as_json: bool) -> None:
    """The scores of every player in a sweep, with what is still missing."""
    cards = scorecards(outcomes(path))
    if as_json:
        print_json(
            {
                "campaign": path.stem,
                "journal": str(path),
                "whole": progress.whole,
                "stopped": progress.stopped,
                "total": progress.total,
                "done": progress.done,
                "judged": progress.judged,
                "unanswered": progress.unanswered,
                "scores": cards,
            }
        )
        return
    for line in PLAYER_TABLE.lines([card for card in cards if card.scope == ALL]):
        print_line(line)


PLAYER_TABLE = TextTable[Scorecard](
    (
        Column("player", lambda card: card.player),
        Column("problems", lambda card: str(card.problems), right=True),
        Column("attempts", lambda card: str(card.attempts), right=True),
        Column("pass@1", lambda card: share_words(card.pass_1)),
        Column(
            "best of k",
            lambda card: (
                f"{share_words(card.pass_k)} k={card.most_attempts}" if card.most_attempts > 1 else ""
            ),
        ),
        Column("fast_1", lambda card: share_words(card.fast.get("1"))),
        Column("solved", lambda card: str(card.solved), right=True),
        Column("faster", lambda card: str(card.faster), right=True),
        Column("speedup", lambda card: mean_words(card.speedup)),
        Column("too noisy", lambda card: str(card.noisy or ""), right=True),
        Column("one size", lambda card: str(card.one_size_only or ""), right=True),
        Column("$", lambda card: f"{card.usd:.2f}" if card.usd else "", right=True),
    )
)
"""Players of one sweep. Scores with 95 % intervals over problems (`arena/board/definitions.py`)."""
