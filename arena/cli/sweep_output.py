"""The output of `sweep`: its progress on stderr; on stdout the table of baselines, or the scores of the players."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arena.board.scorecard import ALL, outcomes, results, scorecards
from arena.board.tables import card_row, table
from arena.cli.output import LiveLine, complain, print_json, print_lines, say
from arena.records.run_record import fields_of
from arena.records.voids import Voids
from arena.sweep.grid import RECENT
from arena.sweep.records import REFUSED, CellResult, SweepPlan
from arena.sweep.sweep import Listener, Sweep, SweepProgress
from arena.words.headline import WHERE, brief_words, outcome_words
from arena.words.table import Column, TextTable
from problems.specification import Problem
from sandbox.protocol.events import Interval
from sandbox.protocol.verdict import ExitCode, Verdict

_SAID = ("outcome", "clock", "told")
BaselineRow = dict[str, Any]
"""The result of a baseline against itself: a row of `sweep --json`. Fields are added, never renamed."""


def baseline_row(number: int, slug: str, verdict: str, detail: str, result: CellResult | None = None) -> BaselineRow:
    """Returns a row. result: None if no setting could be chosen."""
    report = result.report if result is not None else None
    setting = result.cell.setting if result is not None else None
    base = report.baseline_us if report is not None else None
    speedup = report.speedup if report is not None else None
    roofline = report.roofline if report is not None else None
    return {
        "id": number,
        "problem": slug,
        **(fields_of(setting, "world dtype") if setting is not None else {"world": None, "dtype": None}),
        "verdict": verdict,
        "detail": detail,
        **(fields_of(report, "outcome clock told") if report is not None else dict.fromkeys(_SAID, "")),
        "call_us": base.call if base else None,
        "device_us": base.device if base else None,
        "call": _bounds(speedup.call) if speedup else None,
        "device": _bounds(speedup.device) if speedup else None,
        "percent": roofline.percent if roofline else None,
        "limiter": roofline.limiter if roofline else None,
        "text": report.failure.text if report is not None and report.failure else "",
        "seconds": round(result.seconds, 2) if result is not None else 0.0,
    }


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.median, interval.high]


def _figure(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


BASELINE_TABLE = TextTable[BaselineRow](
    (
        Column("problem", lambda row: f"{row['id']:02d} {row['problem']}"),
        Column("verdict", lambda row: row["verdict"]),
        Column("call µs", lambda row: _figure(row["call_us"])),
        Column("device µs", lambda row: _figure(row["device_us"])),
        Column("A/A call", lambda row: _figure(row["call"] and row["call"][1], 3)),
        Column("A/A device", lambda row: _figure(row["device"] and row["device"][1], 3)),
        Column("headline", lambda row: f"{outcome_words(row['outcome'])} {WHERE.get(row['clock'], '')}".rstrip()),
        Column("of bound", lambda row: f"{_figure(row['percent'], 0)} % {row['limiter']}" if row["limiter"] else ""),
        Column("s", lambda row: _figure(row["seconds"])),
        Column("detail", lambda row: row["detail"][:100]),
    )
)


class BaselineRows:
    """The rows of the table: results of this session and of earlier ones, and problems that were left out."""

    def __init__(self, plan: SweepPlan) -> None:
        self._plan = plan
        self._rows: dict[str, BaselineRow] = {}

    def left_out(self, problem: Problem, why: str) -> None:
        """Adds a problem that cannot be run in this setting."""
        self._rows[problem.slug] = baseline_row(problem.id, problem.slug, REFUSED, why)

    def read(self, path: Path) -> None:
        """Adds the newest result of each problem from the journal."""
        found = {result.cell.slug: result for result in results(path)}
        for slug, result in found.items():
            row = baseline_row(result.problem_id, slug, result.verdict, result.detail, result)
            self._rows.setdefault(slug, row)

    @property
    def rows(self) -> list[BaselineRow]:
        """The rows in the order of the plan."""
        return [self._rows[slug] for slug in self._plan.problems if slug in self._rows]

    def exit_code(self) -> ExitCode:
        """Returns 0 if every baseline passed and none differs from itself, 3 if only the harness failed, else 1.

        Lists on stderr the baselines that differ.
        """
        different = [row for row in self.rows if row["outcome"] in ("faster", "slower")]
        for row in different:
            low, median, high = row[row["clock"] or "call"]
            where = f" ({WHERE[row['clock']]})" if row["clock"] else ""
            complain(
                f"the baseline of {row['id']} {row['problem']} is {row['outcome']} than itself{where}: "
                f"{median:.3f} [{low:.3f}, {high:.3f}]",
                "run it again on a quiet machine; if it repeats, do not trust speedups measured here",
            )
        if different or any(row["verdict"] not in (Verdict.PASS, Verdict.HARNESS_ERROR) for row in self.rows):
            return ExitCode.KERNEL_FAILED
        return ExitCode.PASS if all(row["verdict"] == Verdict.PASS for row in self.rows) else ExitCode.ENVIRONMENT

    def show(self, as_json: bool, begun: bool) -> None:
        """Prints the rows. Without rows: an empty list if `as_json` and the sweep had begun, else nothing."""
        if as_json and (self._rows or begun):
            print_json(self.rows)
        elif self._rows:
            print_lines(BASELINE_TABLE.lines(self.rows))


def print_sweep(path: Path, progress: SweepProgress, voids: Voids, as_json: bool) -> None:
    """Prints the scores of every player in a sweep; as JSON also the sweep's progress."""
    cards = scorecards(outcomes(path, voids))
    if as_json:
        print_json(
            {
                "sweep": path.stem,
                "journal": str(path),
                **fields_of(progress, "whole stopped total done judged unanswered"),
                "scores": cards,
            }
        )
        return
    print_lines(table([card_row(None, card) for card in cards if card.scope == ALL]))


_BAR = 24


class SweepProgressLine:
    """Shows the events of a sweep."""

    def __init__(self, name: str, rows: BaselineRows | None) -> None:
        """rows: also gets what is left out if baselines are run against themselves, else None."""
        self.listener = Listener(judged=self._judged, left_out=self._left_out, said=self._said)
        self._name = name
        self._rows = rows
        self._shown = LiveLine()
        self.notice = self._shown.notice
        self._sweep: Sweep | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._began = 0.0

    @contextmanager
    def watching(self, sweep: Sweep) -> Iterator[None]:
        """Shows the progress of a sweep while the block runs."""
        self._sweep = sweep
        self._began = time.monotonic()
        self._recent.append(self._began)
        say(f"sweep {self._name}: {sweep.journal.path}")
        self._draw()  # the first result may take a minute
        try:
            yield
        finally:
            self._shown.clear()

    @property
    def progress(self) -> SweepProgress:
        """The progress of the sweep; after its end, the final state."""
        return self._sweep.progress if self._sweep is not None else SweepProgress()

    def _judged(self, result: CellResult) -> None:
        self._recent.append(time.monotonic())
        if not self._shown.live or not (result.final and result.passed):
            self._shown.clear()
            say(f"{self.progress.done}/{self.progress.total} {_line(result)}")
        self._draw()

    def _left_out(self, problem: Problem, player: str, why: str) -> None:
        if self._rows is not None:
            self._rows.left_out(problem, why)
        self._said(f"{problem.stem} {player}: left out: {why}")

    def _said(self, text: str) -> None:
        self._shown.clear()
        say(text)

    def _draw(self) -> None:
        if self._sweep is not None:
            self._shown.draw(self._words(self._sweep))

    def _words(self, sweep: Sweep) -> str:
        progress, pool = sweep.progress, sweep.pool
        total = max(progress.total, 1)
        filled = round(_BAR * min(progress.done / total, 1.0))
        parts = [f"{'█' * filled}{'░' * (_BAR - filled)} {progress.done}/{progress.total}"]
        if len(self._recent) > 1:
            each = (self._recent[-1] - self._recent[0]) / (len(self._recent) - 1)
            left = each * max(progress.total - progress.done - progress.unanswered, 0)
            parts.append(f"{each:.1f} s each, {_duration(left)} to go")
        good = progress.verdicts[Verdict.PASS.value]
        parts.append(f"✓ {good}  ✗ {progress.judged - good}")
        if progress.writing:
            parts.append(f"{progress.writing} writing")
        if pool.spent.usd or pool.usd:
            limit = f" of ${pool.usd:g}" if pool.usd is not None else ""
            parts.append(f"${pool.spent.usd:.2f}{limit}")
        return "   ".join(parts)


def _line(result: CellResult) -> str:
    cell = result.cell
    record = result.record
    said = f" {brief_words(record.median, record.outcome)}" if record.median is not None else ""
    attempt = f" {cell.attempt}" if cell.attempt > 1 else ""
    only = " (at this size only)" if record.one_size_only else ""
    if record.holds_at_other_sizes:
        only += f", faster at other sizes: {record.holds_at_other_sizes}"
    detail = "" if result.passed else f" {result.detail}"
    who = f"{result.problem_id:02d}_{cell.slug} {cell.player}{attempt}"
    return f"{who}: {result.verdict}{said}{only} {result.seconds:.1f} s{detail}"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d} h" if hours else f"{rest // 60}:{rest % 60:02d} min"
