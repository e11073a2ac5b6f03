"""The output of `sweep` on stdout: the table of baselines against themselves, or the scores of a sweep."""

from pathlib import Path
from typing import Any

from arena.board.outcomes import outcomes, results
from arena.board.scorecard import ALL, Scorecard, scorecards
from arena.board.tables import bound_words, counts_words, mean_words, share_words
from arena.cli.diagnostics import complain
from arena.cli.output import print_json, print_line
from arena.records.run_record import BriefResult, RunRecord, view
from arena.records.voids import Voids
from arena.sweep.cells import SweepProgress
from arena.sweep.plan import SweepPlan
from arena.sweep.records import REFUSED, Cell, CellResult
from arena.words.headline import WHERE, by_clock, outcome_words
from arena.words.table import Column, TextTable
from problems.specification import Problem
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import ExitCode, Verdict


class BaselineRow(BriefResult, frozen=True, kw_only=True):
    """The result of a baseline against itself. world 0: no setting could be chosen."""

    id: int
    problem: str
    world: int = 0
    dtype: str = ""
    seconds: float = 0.0
    report: RunRecord | None = None

    @property
    def differs(self) -> bool:
        """Whether the baseline was judged faster or slower than itself."""
        return self.outcome in ("faster", "slower")

    def ratio(self, clock: str) -> Interval | None:
        """Returns the speedup over itself on one clock."""
        return by_clock(self.report.speedup, clock) if self.report is not None else None

    def time(self, clock: str) -> str:
        """Formats the microseconds of a call on one clock; empty if nothing was timed."""
        times = self.report.baseline_us if self.report is not None else None
        value = None if times is None else times.call if clock == "call" else times.device
        return "" if value is None else f"{value:.1f}"

    def bound(self) -> str:
        """Formats the percentage of the roofline's bound, and the limiting resource."""
        roofline = self.report.roofline if self.report is not None else None
        return f"{roofline.percent:.0f} % {roofline.limiter}" if roofline else ""


def _median(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval.median:.3f}"


BASELINE_TABLE = TextTable[BaselineRow](
    (
        Column("problem", lambda row: f"{row.id:02d} {row.problem}"),
        Column("verdict", lambda row: row.verdict),
        Column("call µs", lambda row: row.time("call")),
        Column("device µs", lambda row: row.time("device")),
        Column("A/A call", lambda row: _median(row.ratio("call"))),
        Column("A/A device", lambda row: _median(row.ratio("device"))),
        Column("headline", lambda row: f"{outcome_words(row.outcome)} {WHERE.get(row.clock, '')}".rstrip()),
        Column("of bound", lambda row: row.bound()),
        Column("s", lambda row: f"{row.seconds:.1f}"),
        Column("detail", lambda row: row.detail[:100]),
    )
)


class BaselineRows:
    """Collects the rows of the table, including results of earlier sessions."""

    def __init__(self, plan: SweepPlan) -> None:
        self._plan = plan
        self._rows: dict[str, BaselineRow] = {}
        self._earlier: set[str] = set()

    def judged(self, result: CellResult) -> None:
        """Adds a result."""
        self._rows[result.cell.slug] = _row(result)

    def skipped(self, cell: Cell) -> None:
        """Records a cell whose result is already in the journal."""
        self._earlier.add(cell.digest)

    def left_out(self, problem: Problem, why: str) -> None:
        """Adds a problem that cannot be run in this setting."""
        self._rows[problem.slug] = BaselineRow(
            run_id="", id=problem.id, problem=problem.slug, verdict=REFUSED, detail=why
        )

    def read_earlier(self, path: Path) -> None:
        """Adds the rows of skipped cells from the journal."""
        for result in results(path) if self._earlier else ():
            if result.cell.digest in self._earlier and result.final:
                self._rows[result.cell.slug] = _row(result)

    @property
    def rows(self) -> list[BaselineRow]:
        """The rows in the order of the plan."""
        return [self._rows[slug] for slug in self._plan.problems if slug in self._rows]

    def exit_code(self) -> ExitCode:
        """Returns 0 if every baseline passed and none differs from itself, 3 if only the harness failed, else 1.

        Lists on stderr the baselines that differ.
        """
        different = [row for row in self.rows if row.differs]
        for row in different:
            ratio = row.ratio(row.clock)
            figures = f": {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else ""
            where = f" ({WHERE[row.clock]})" if row.clock else ""
            complain(
                f"the baseline of {row.id} {row.problem} is {row.outcome} than itself{where}{figures}",
                "run it again on a quiet machine; if it repeats, do not trust speedups measured here",
            )
        if different or any(row.verdict not in (Verdict.PASS, Verdict.HARNESS_ERROR) for row in self.rows):
            return ExitCode.KERNEL_FAILED
        return ExitCode.PASS if all(row.verdict == Verdict.PASS for row in self.rows) else ExitCode.ENVIRONMENT

    def show(self, as_json: bool, begun: bool) -> None:
        """Prints the rows. Without rows: an empty list if `as_json` and the sweep had begun, else nothing."""
        if as_json and (self._rows or begun):
            print_json(list(map(_object, self.rows)))
        elif self._rows:
            for line in BASELINE_TABLE.lines(self.rows):
                print_line(line)


def _row(result: CellResult) -> BaselineRow:
    return view(
        BaselineRow, result, result.cell.setting, result.report,
        id=result.problem_id, problem=result.cell.slug, seconds=round(result.seconds, 2),
    )  # fmt: skip


def _object(row: BaselineRow) -> dict[str, Any]:
    """Returns a row of `sweep --json`. Fields are added, never renamed."""
    report = row.report
    base = report.baseline_us if report is not None else None
    speedup = report.speedup if report is not None else None
    roofline = report.roofline if report is not None else None
    return {
        "id": row.id,
        "problem": row.problem,
        "world": row.world or None,
        "dtype": row.dtype or None,
        "verdict": row.verdict,
        "detail": row.detail,
        "outcome": row.outcome,
        "clock": row.clock,
        "told": report.told if report is not None else "",
        "call_us": base.call if base else None,
        "device_us": base.device if base else None,
        "call": _bounds(speedup.call) if speedup else None,
        "device": _bounds(speedup.device) if speedup else None,
        "percent": roofline.percent if roofline else None,
        "limiter": roofline.limiter if roofline else None,
        "text": report.failure.text if report is not None and report.failure else "",
        "seconds": row.seconds,
    }


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.median, interval.high]


def print_sweep(path: Path, progress: SweepProgress, voids: Voids, as_json: bool) -> None:
    """Prints the scores of every player in a sweep; as JSON also the sweep's progress."""
    cards = scorecards(outcomes(path, voids))
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
            lambda card: f"{share_words(card.pass_k)} k={card.most_attempts}" if card.most_attempts > 1 else "",
        ),
        Column("fast_1", lambda card: share_words(card.fast.get("1"))),
        Column("solved", lambda card: str(card.solved), right=True),
        Column("faster", lambda card: str(card.faster), right=True),
        Column("speedup", lambda card: mean_words(card.speedup)),
        Column("of bound", lambda card: bound_words(card.percent)),
        Column("gap closed", lambda card: share_words(card.gap_closed) if card.gap_closed else ""),
        Column("no roofline", lambda card: str(card.no_roofline or ""), right=True),
        Column("too noisy", lambda card: str(card.noisy or ""), right=True),
        Column("one size", lambda card: str(card.one_size_only or ""), right=True),
        Column("faster at other sizes", lambda card: counts_words(card.holds)),
        Column("voided", lambda card: str(card.voided or ""), right=True),
        Column("$", lambda card: f"{card.usd:.2f}" if card.usd else "", right=True),
    )
)
"""The players of one sweep. Scores have 95 % intervals over problems (`arena/board/definitions.py`)."""
