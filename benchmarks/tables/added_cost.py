"""A table of the baseline with a known cost added, judged against the baseline: is it called slower, and by how much?

Host cost: the host is busy for a share of what each call just took. It is expected in end-to-end time, and only if the
host limits the calls. If the device is busy all the time, it hides the host's wait.
Device cost: the stream is busy for a share of the device time. It is expected in device time. The true addition is what
the kernel measured when it calibrated itself, because a launch alone adds a microsecond or two.
"""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from arena.errors import UsageError
from arena.machine.facts import choose_device
from arena.records.run_record import view
from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge, RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.words.headline import WHERE, by_clock, outcome_words
from arena.words.table import Column, TextTable
from arena.workspace.named_kernels import BASELINE
from benchmarks.costly_kernels import COSTS, DEVICE, HOST, found_added_us, with_device_cost, with_host_cost
from benchmarks.rows import REFUSED, PlannedRun, RunRow, finished_row, require_harness
from benchmarks.tables.gpu_runs import failure
from benchmarks.tables.scope import Conclusion, Scope, Tell
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Interval, Microseconds, Setting
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import outcome

SHARES = (0.05, 0.10, 0.20, 0.50)
RUNS = 5
"""Runs of each cost, in turns, so that drift affects all of them."""
PROBLEMS = (13, 1, 54, 31)
"""A product with a collective, a collective alone, a ring of sends, calls that wait for the device."""
PROBLEMS_END_TO_END = (13, 9)
"""The same if there is no device time."""
HOST_BOUND = 0.8
"""The host limits a call if device time is at most this share of it, or if there is no device time."""
NO_DEVICE_TIME = "calls wait for the device: there is no device time to add to"


@dataclass(frozen=True)
class AddedCost:
    """A cost that is added. added_us: device time; 0 for a cost of the host."""

    kind: str
    share: float
    expected: str
    """The clock that should show it: "call" or "device"; empty if the device's work may hide it."""
    added_us: float = 0.0


class TruthRow(RunRow, frozen=True, kw_only=True):
    """One run of a kernel whose true speedup is known."""

    expected: str = ""
    """The clock that should show it; empty: neither for sure."""
    truth: float | None = None
    """The speedup that this clock should give."""

    @property
    def interval(self) -> Interval | None:
        """The interval of the expected clock."""
        return by_clock(self.speedup, self.expected) if self.expected else None

    @property
    def holds(self) -> bool | None:
        """Whether the expected clock's interval contains the truth; None if that is not known."""
        if self.interval is None or self.truth is None:
            return None
        return self.interval.low <= self.truth <= self.interval.high

    def outcome_by(self, clock: str) -> str:
        """The outcome by one clock; empty if it was not timed."""
        interval = by_clock(self.speedup, clock)
        return outcome(interval) if interval else ""

    def by(self, clock: str) -> str:
        """ "0.951 [0.940, 0.962] slower holds", by one clock."""
        interval = by_clock(self.speedup, clock)
        if interval is None:
            return "–"
        mark = "" if clock != self.expected or self.holds is None else " holds" if self.holds else " MISSES"
        ends = f"{interval.median:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
        return f"{ends} {outcome_words(self.outcome_by(clock))}{mark}"


class AddedCostRow(TruthRow, frozen=True, kw_only=True):
    """One run of a baseline with a cost."""

    cost: str
    share: float
    added_us: float = 0.0
    """Device time that is added to a call, as the kernel measured it."""


async def measure(scope: Scope, tell: Tell, rows: list[AddedCostRow]) -> None:
    """Judges 8 costs on GPUs, 4 on CPU ranks, `RUNS` times for each problem. A run takes up to six seconds.

    Raises:
        MachineError: there are not enough GPUs, or nothing can be judged here.
    """
    device = choose_device(scope.device or Settings().device)
    problems = scope.problems_or(PROBLEMS if kind_of(device).has_gate else PROBLEMS_END_TO_END)
    choice = Choice(preset=scope.preset, world=scope.world, device=device)
    tell(TABLE.header)
    async with temporary_engine() as engine:
        for problem in problems:
            try:
                setting = choose_setting(problem, choice, Settings())
                async for row in _rows(engine, problem, setting, scope.repetitions or RUNS, tell):
                    rows.append(row)
                    tell(TABLE.line(row))
                    require_harness(rows)
            except UsageError as error:
                tell(f"{problem.id:02d} {problem.slug}: {REFUSED}: {error.message}")


async def _rows(judge: Judge, problem: Problem, setting: Setting, runs: int, tell: Tell) -> AsyncIterator[AddedCostRow]:
    """Runs the baseline itself to measure its times, then every cost repeatedly."""
    asked = RunRequest(problem=problem, setting=setting, kernel_name=BASELINE, source="")
    judgement = await judge_to_end(judge, asked)
    baseline_us = judgement.result.baseline_us
    if judgement.result.verdict is not Verdict.PASS or baseline_us is None:
        tell(f"{problem.id:02d} {problem.slug}: the baseline got {judgement.result.verdict}: {judgement.result.detail}")
        return
    found = costs(baseline_us)
    if kind_of(setting.device).has_gate and not any(cost.kind == DEVICE for cost in found):
        tell(f"{problem.id:02d} {problem.slug}: {NO_DEVICE_TIME}")
    for _ in range(runs):
        for cost in found:
            name = f"{cost.kind}_{cost.share * 100:.0f}"
            costly = replace(asked, kernel_name=f"{name}.py", source=source_of(problem, cost))
            started = time.monotonic()
            judgement = await judge_to_end(judge, costly)
            row = finished_row(PlannedRun(problem, name, Choice()), judgement, started)
            yield row_of(row, cost, found_added_us(judgement.printed))


def source_of(problem: Problem, cost: AddedCost) -> str:
    """The kernel's text."""
    if cost.kind == DEVICE:
        return with_device_cost(problem, cost.added_us)
    return with_host_cost(problem, cost.share)


def costs(baseline_us: Microseconds) -> list[AddedCost]:
    """The costs that can be added to a baseline with these times, and the clock that should show each."""
    call, own = baseline_us.call or 0.0, baseline_us.device
    bound = own is None or own <= HOST_BOUND * call
    found = [AddedCost(HOST, share, "call" if bound else "") for share in SHARES]
    if own is not None:
        found += [AddedCost(DEVICE, share, "device", share * own) for share in SHARES]
    return found


def row_of(run: RunRow, cost: AddedCost, added_us: float | None) -> AddedCostRow:
    """The row of a run with its cost. added_us: device time that the kernel measured; None if it printed nothing."""
    added = (added_us or cost.added_us) if cost.kind == DEVICE else 0.0
    truth = _truth(cost, run.baseline_us, added)
    return view(AddedCostRow, run, cost, cost=cost.kind, added_us=added, truth=truth)


def _truth(cost: AddedCost, baseline_us: Microseconds | None, added_us: float) -> float | None:
    """The true speedup by the expected clock; None if it is not known."""
    if cost.expected == "call":
        return 1 / (1 + cost.share)
    own = baseline_us.device if baseline_us else None
    if cost.expected == "device" and own:
        return own / (own + added_us)
    return None


def conclude(rows: Sequence[AddedCostRow]) -> Conclusion:
    """A line for each cost of each problem, and one for each cost of all problems. Sound: every run passed."""
    lines = []
    problems = list(dict.fromkeys(row.id for row in rows))
    for problem in problems:
        mine = [row for row in rows if row.id == problem]
        lines += [f"{mine[0].id:02d} {mine[0].problem}: {line}" for line in _by_cost(mine)]
    if len(problems) > 1:
        expected = [row for row in rows if row.expected]
        lines += [f"all where it is expected: {line}" for line in _by_cost(expected)]
    return Conclusion(lines, all(row.verdict == Verdict.PASS for row in rows))


def _by_cost(rows: Sequence[AddedCostRow]) -> list[str]:
    kinds = sorted({(COSTS.index(row.cost), row.share) for row in rows})
    return [summary([row for row in rows if (COSTS.index(row.cost), row.share) == kind]) for kind in kinds]


def summary(rows: Sequence[AddedCostRow]) -> str:
    """The runs of one cost in a line: how often called slower, by clock; how often the interval contains the truth."""
    first = rows[0]
    timed = [row for row in rows if row.speedup is not None]
    by_call = sum(row.outcome_by("call") == "slower" for row in timed)
    by_device = sum(row.outcome_by("device") == "slower" for row in timed)
    headline = sum(row.outcome == "slower" for row in timed)
    expected = WHERE.get(first.expected, "neither for sure")
    text = f"{first.cost} {100 * first.share:.0f} %, expected: {expected}; slower {headline} of {len(rows)}"
    text += f" (end-to-end {by_call}, device time {by_device})"
    known = [row for row in timed if row.holds is not None]
    if known:
        held = sum(bool(row.holds) for row in known)
        medians = median(row.interval.median for row in known if row.interval)
        truth = median(row.truth for row in known if row.truth)
        text += f"; truth {truth:.3f} in {held} of {len(known)} intervals, found {medians:.3f}"
    return text


TABLE = TextTable[AddedCostRow](
    (
        Column("problem", lambda row: f"{row.id:02d} {row.problem}"[:28], 28),
        Column("size", lambda row: row.preset, 10, right=True),
        Column("cost", lambda row: f"{row.cost} {100 * row.share:.0f} %", 11),
        Column("expected", lambda row: WHERE.get(row.expected, "neither"), 11),
        Column("verdict", lambda row: row.verdict, 7),
        Column("truth", lambda row: f"{row.truth:.3f}" if row.truth else "–", 5, right=True),
        Column("end-to-end", lambda row: row.by("call"), 38),
        Column("device time", lambda row: row.by("device"), 38),
        Column("pairs", lambda row: f"{row.pairs.call}+{row.pairs.device}", 7, right=True),
        Column("s", lambda row: f"{row.seconds:.1f}", 5, right=True),
        Column("", failure),
    )
)
"""Speedups of the baseline with a cost over the baseline, by both clocks."""
