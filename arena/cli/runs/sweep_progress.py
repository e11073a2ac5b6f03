"""Shows a sweep's progress on stderr: one line that is redrawn on a terminal, else one line per result."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from arena.cli.diagnostics import LiveLine, complain, say
from arena.cli.runs.sweep_output import BaselineRows
from arena.runs.run_request import Notice
from arena.sweep.cells import Listener, SweepProgress
from arena.sweep.records import Cell, CellResult
from arena.sweep.sweep import Sweep
from arena.words.headline import brief_words, by_clock
from problems.specification import Problem
from sandbox.protocol.verdict import Verdict

RECENT = 40
"""Number of last results from which the rate is computed."""
_BAR = 24


class SweepProgressLine:
    """Shows the events of a sweep."""

    def __init__(self, name: str, rows: BaselineRows | None) -> None:
        """rows: also gets the results if baselines are run against themselves, else None."""
        self.listener = Listener(judged=self._judged, skipped=self._skipped, left_out=self._left_out, said=self._said)
        self._name = name
        self._rows = rows
        self._shown = LiveLine()
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
        try:
            yield
        finally:
            self._clear()

    @property
    def progress(self) -> SweepProgress:
        """The progress of the sweep; after its end, the final state."""
        return self._sweep.progress if self._sweep is not None else SweepProgress()

    def notice(self, notice: Notice) -> None:
        """Shows a notice of the engine on a line of its own."""
        self._clear()
        complain(notice.message, notice.advice)

    def _judged(self, result: CellResult) -> None:
        self._recent.append(time.monotonic())
        if self._rows is not None:
            self._rows.judged(result)
        if not self._shown.live or not (result.final and result.passed):
            self._clear()
            say(_line(result))
        self._draw()

    def _skipped(self, cell: Cell) -> None:
        if self._rows is not None:
            self._rows.skipped(cell)
        self._draw()

    def _left_out(self, problem: Problem, player: str, why: str) -> None:
        if self._rows is not None:
            self._rows.left_out(problem, why)
        if player != "house":  # expected: not all problems have a house kernel
            self._said(f"{problem.stem} {player}: left out: {why}")

    def _said(self, text: str) -> None:
        self._clear()
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

    def _clear(self) -> None:
        self._shown.clear()


def _line(result: CellResult) -> str:
    cell = result.cell
    report = result.report
    speed = by_clock(report.speedup, report.clock) if report is not None else None
    said = f" {brief_words(speed.median, report.outcome)}" if speed is not None and report is not None else ""
    attempt = f" {cell.attempt}" if cell.attempt > 1 else ""
    only = " (at this size only)" if report is not None and report.one_size_only else ""
    if report is not None and report.holds_at_other_sizes:
        only += f", faster at other sizes: {report.holds_at_other_sizes}"
    detail = "" if result.passed else f" {result.detail}"
    who = f"{result.problem_id:02d}_{cell.slug} {cell.player}{attempt}"
    return f"{who}: {result.verdict}{said}{only} {result.seconds:.1f} s{detail}"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d} h" if hours else f"{rest // 60}:{rest % 60:02d} min"
