"""A sweep as a table of problems and players, computed from its journal. It keeps a short mark per attempt."""

from collections import deque
from dataclasses import dataclass, field
from textwrap import shorten

import msgspec

from arena.records.ranking import Measurement, ranked
from arena.records.run_record import BriefResult, view
from arena.records.voids import NO_VOIDS, Void, Voids
from arena.sweep import records
from arena.sweep.records import SweepPlan
from arena.words.headline import brief_words
from sandbox.protocol.verdict import Verdict

RECENT = 40
"""Number of last results from which the rate is computed."""
_SHORT = 160
"""Characters of a verdict's detail that are kept."""


class CellMark(BriefResult, frozen=True, kw_only=True):
    """One attempt. Its run's journal is in the folder of the runs, if it was judged on this machine."""

    attempt: int
    speedup: float | None
    trace_id: str
    sha256: str
    one_size_only: bool
    holds: str
    """Other sizes at which a faster kernel is faster, too: "all", "some" or "none"; empty if not known."""
    seconds: float
    usd: float
    measurement: Measurement | None = None
    """None if nothing was timed, or the result is voided."""
    voided: str = ""
    """Who voided it and why; empty: it counts."""

    @property
    def passed(self) -> bool:
        """Whether the kernel is correct, and the result is not voided."""
        return self.verdict == Verdict.PASS and not self.voided


@dataclass
class Square:
    """All attempts of one player at one problem."""

    marks: dict[int, CellMark] = field(default_factory=dict)
    """By attempt."""
    written: int = 0
    """Number of answers, judged or not."""

    @property
    def passed(self) -> int:
        """Number of correct kernels."""
        return sum(mark.passed for mark in self.marks.values())

    @property
    def best(self) -> CellMark | None:
        """The fastest correct kernel, with all measurements of its code pooled; a wrong one if none is correct."""
        if kernels := ranked(self.marks.values(), lambda mark: mark.measurement):
            mark, pooled = kernels[0].item, kernels[0]
            if len(pooled.pooled) == 1:
                return mark
            return msgspec.structs.replace(mark, speedup=pooled.speedup.median, outcome=pooled.outcome)
        return max(self.marks.values(), key=lambda mark: mark.passed, default=None)

    @property
    def waiting(self) -> int:
        """Number of answers that wait for a worker."""
        return max(0, self.written - len(self.marks))


@dataclass
class SweepGrid:
    """The table of a sweep, as a screen shows it."""

    voids: Voids = NO_VOIDS
    plan: SweepPlan | None = None
    sessions: int = 0
    squares: dict[tuple[str, str], Square] = field(default_factory=dict)
    """By problem (slug) and player."""
    players: list[str] = field(default_factory=list)
    slugs: list[str] = field(default_factory=list)
    usd: float = 0.0
    last_at: float = 0.0
    """When the last line was written, in seconds since the epoch."""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Times of the newest session's last results, in seconds since the epoch."""

    def apply(self, line: records.AnyLine) -> None:
        """Applies the next line of the journal."""
        self.last_at = max(self.last_at, line.at)
        match line:
            case records.SweepSession():
                self.plan = line.plan
                self.sessions += 1
                self.recent.clear()
                self.recent.append(line.at)
                self.players = list(dict.fromkeys([*self.players, *line.plan.players]))
                self.slugs = list(dict.fromkeys([*self.slugs, *line.plan.problems]))
            case records.Written():
                self._square(line.cell.slug, line.cell.player).written += 1
                self.usd += line.spent.usd
            case records.Unanswered():
                self.usd += line.spent.usd
            case records.CellResult() if line.verdict != records.REFUSED:
                self.recent.append(line.at)
                self._square(line.cell.slug, line.cell.player).marks[line.cell.attempt] = _mark(
                    line, self.voids.of(line.run_id, line.code)
                )

    def _square(self, slug: str, player: str) -> Square:
        return self.squares.setdefault((slug, player), Square())

    @property
    def total(self) -> int:
        """Number of attempts in the plan. Those of a player without a kernel for the problem are among them."""
        if self.plan is None:
            return 0
        writing = sum(player.startswith(("model:", "agent:")) for player in self.plan.players)
        each = writing * self.plan.attempts + len(self.plan.players) - writing
        return each * len(self.plan.problems)

    @property
    def left_s(self) -> float | None:
        """Seconds until the last result, at the rate of the last ones; None: not known yet."""
        if len(self.recent) < 2:
            return None
        each = (self.recent[-1] - self.recent[0]) / (len(self.recent) - 1)
        return each * max(self.total - self.results, 0)

    @property
    def results(self) -> int:
        """Number of attempts with a verdict."""
        return sum(len(square.marks) for square in self.squares.values())

    @property
    def passed(self) -> int:
        """Number of correct kernels among them."""
        return sum(square.passed for square in self.squares.values())


def _mark(line: records.CellResult, void: Void | None) -> CellMark:
    record = line.record
    measurement = line.measurement if void is None else None
    return view(
        CellMark, line, line.cell, line.spent, record,
        detail=shorten(line.detail, _SHORT, placeholder=" …"),
        speedup=measurement.speedup.median if measurement is not None else None,
        holds=record.holds_at_other_sizes or "",
        measurement=measurement,
        voided=void.words if void is not None else "",
    )  # fmt: skip


def mark_words(mark: CellMark) -> str:
    """ "PASS 1.42× faster, faster at other sizes: some", "NO_KERNEL refusal", "PASS voided by anna: ..."."""
    if mark.voided:
        return f"{mark.verdict} {mark.voided}"
    if mark.verdict == records.NO_KERNEL:
        return f"{mark.verdict} {mark.detail}"
    speed = f" {brief_words(mark.speedup, mark.outcome)}" if mark.speedup is not None else ""
    return f"{mark.verdict}{speed}{holds_words(mark)}"


def holds_words(mark: CellMark) -> str:
    """ ", faster at other sizes: some"; empty if not known."""
    return f", faster at other sizes: {mark.holds}" if mark.holds else ""
