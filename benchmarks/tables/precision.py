"""How precise the clock is after so many seconds of timing: the baseline against itself, and with a cost of 5 % added.

For each of some problems with short and long calls: pairs of batches, the share of the time in which ranks ran counted
batches, and the half width of either clock's interval, from the pairs timed until then.
"""

import time
from collections.abc import Sequence
from functools import partial
from statistics import median

import msgspec
from msgspec.structs import replace

from arena.errors import UsageError
from arena.records.run_record import view
from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge, RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.words.table import Column, TextTable
from arena.workspace.named_kernels import BASELINE
from benchmarks.costly_kernels import DEVICE, HOST, found_added_us
from benchmarks.rows import REFUSED, PlannedRun, finished_row, require_harness
from benchmarks.tables.added_cost import AddedCost, TruthRow, row_of, source_of
from benchmarks.tables.gpu_runs import failure, microseconds
from benchmarks.tables.scope import Conclusion, Scope, Tell
from problems.specification import Problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Microseconds, Setting
from sandbox.protocol.result import Batches, Samples
from sandbox.protocol.verdict import Verdict
from sandbox.timing import interval
from sandbox.timing.interval import Pair, half_width

PROBLEMS = (1, 5, 8, 13, 20, 31, 44, 51, 62, 70, 78, 85)
"""Four with calls below 0.1 ms, four below 1 ms and four with longer ones, at `paper` on four H100."""
BUDGET_S = 5.0
"""Time budget of a run. Timing takes at least half of it."""
SECONDS = (1.0, 2.5, 5.0)
"""Seconds of timing after which precision is told."""
SHARE = 0.05
"""The added cost, as a share of a call."""
SAME, COSTLY = "itself", "+5 %"


class Point(msgspec.Struct, frozen=True):
    """What was known after some seconds of timing."""

    seconds: float
    call_pairs: int
    device_pairs: int
    duty: float
    """Share of these seconds in which a counted batch ran."""
    call: float | None
    """Half width of the interval's natural logarithm; None: no pairs."""
    device: float | None


class PrecisionRow(TruthRow, frozen=True, kw_only=True):
    """One run with its precision after some seconds."""

    points: Sequence[Point] = ()
    """At each of SECONDS that the run reached, and at its end."""


async def measure(scope: Scope, tell: Tell, rows: list[PrecisionRow]) -> None:
    """Judges two kernels for each problem: about 15 seconds a problem on GPUs.

    Raises:
        MachineError: there are not enough GPUs, or nothing can be judged here.
    """
    choice = Choice(preset=scope.preset, world=scope.world, device=scope.device)
    tell(TABLE.header)
    async with temporary_engine() as engine:
        for problem in scope.problems_or(PROBLEMS):
            try:
                setting = choose_setting(problem, choice, Settings())
            except UsageError as error:
                tell(f"{problem.id:02d} {problem.slug}: {REFUSED}: {error.message}")
                continue
            for row in await _rows(engine, problem, setting):
                rows.append(row)
                tell(TABLE.line(row))
            require_harness(rows)


async def _rows(judge: Judge, problem: Problem, setting: Setting) -> list[PrecisionRow]:
    """The rows of the baseline itself, and of the baseline with a cost if the first passed."""
    request = RunRequest(problem=problem, setting=setting, kernel_name=BASELINE, source="", budget_s=BUDGET_S)
    started = time.monotonic()
    judgement = await judge_to_end(judge, request)
    run = finished_row(PlannedRun(problem, SAME, Choice()), judgement, started)
    clock = "device" if judgement.result.samples.device else "call"
    found = [view(PrecisionRow, run, points=points(judgement.result.samples), truth=1.0, expected=clock)]
    if run.verdict != Verdict.PASS or run.baseline_us is None:
        return found
    cost = cost_for(run.baseline_us, setting.device)
    started = time.monotonic()
    costly_request = replace(request, kernel_name="costly.py", source=source_of(problem, cost))
    judgement = await judge_to_end(judge, costly_request)
    run = finished_row(PlannedRun(problem, COSTLY, Choice()), judgement, started)
    costly = row_of(run, cost, found_added_us(judgement.printed))
    return [*found, view(PrecisionRow, costly, points=points(judgement.result.samples))]


def cost_for(baseline_us: Microseconds, device: str) -> AddedCost:
    """The cost to add to a baseline with these times: of the device if there is device time, else of the host."""
    if baseline_us.device is None:  # on GPUs such a call waits for the device, which may hide a cost of the host
        return AddedCost(HOST, SHARE, "" if kind_of(device).has_gate else "call")
    return AddedCost(DEVICE, SHARE, "device", SHARE * baseline_us.device)


def points(samples: Samples) -> list[Point]:
    """The precision after each of SECONDS that the run reached, and at its end."""
    last = max((pair.at_s for pair in (*samples.call, *samples.device)), default=0.0)
    return [point(samples, seconds) for seconds in (*(each for each in SECONDS if each <= last), last)] if last else []


def point(samples: Samples, seconds: float) -> Point:
    """The precision after these seconds."""
    call, device = ([pair for pair in found if pair.at_s <= seconds] for found in (samples.call, samples.device))
    counted_us = sum(pair.calls * (pair.baseline_us + pair.contender_us) for pair in (*call, *device))
    return Point(
        seconds, len(call), len(device), counted_us / 1e6 / seconds,
        _width(call, samples.history.get("call", ())), _width(device, samples.history.get("device", ())),
    )  # fmt: skip


def _width(found: Sequence[Batches], history: Sequence[float]) -> float | None:
    """The half width of the interval of these pairs; None if they claim nothing."""
    pairs = [
        Pair(each.reference, each.baseline_us, each.contender_us, each.baseline_first, each.calls) for each in found
    ]
    known = interval.speedup(pairs, history)[0]
    return half_width(known) if known is not None else None


def conclude(rows: Sequence[PrecisionRow]) -> Conclusion:
    """Medians after each of SECONDS and at the end, and how often the truth was inside. Sound: every run passed."""
    lines = []
    for kernel in (SAME, COSTLY):
        mine = [row for row in rows if row.kernel == kernel]
        for seconds in SECONDS:
            found = [each for row in mine for each in row.points[:-1] if each.seconds == seconds]
            if found:
                lines.append(f"{kernel}, after {seconds:g} s, median of {len(found)}: {_summary(found)}")
        if known := [row for row in mine if row.holds is not None]:
            lines.append(f"{kernel}: truth inside {sum(bool(row.holds) for row in known)} of {len(known)} intervals")
        said = [row.outcome for row in mine]
        lines += [f"{kernel}: " + ", ".join(f"{said.count(word)} {word}" for word in sorted(set(said)))] if said else []
    return Conclusion(lines, all(row.verdict == Verdict.PASS for row in rows))


def _summary(found: Sequence[Point]) -> str:
    a_second = median((each.call_pairs + each.device_pairs) / each.seconds for each in found)
    text = f"{a_second:.1f} pairs a second, ranks ran counted batches {100 * median(each.duty for each in found):.0f} %"
    for name, words in (("call", "end-to-end"), ("device", "device time")):
        widths = [width for each in found if (width := getattr(each, name)) is not None]
        text += f"; {words} ±{100 * median(widths):.1f} %" if widths else ""
    return text


def _at(row: PrecisionRow, seconds: float | None = None) -> str:
    """ "14+12 41 % ±3.1 ±1.2": pairs, duty and half widths in percent. seconds: None: at the end."""
    found = [each for each in row.points[:-1] if each.seconds == seconds] if seconds else row.points[-1:]
    if not found:
        return "–"
    each = found[0]
    widths = " ".join("–" if width is None else f"±{100 * width:.1f}" for width in (each.call, each.device))
    return f"{each.call_pairs}+{each.device_pairs} {100 * each.duty:.0f} % {widths}"


TABLE = TextTable[PrecisionRow](
    (
        Column("problem", lambda row: f"{row.id:02d} {row.problem}"[:24], 24),
        Column("W", lambda row: str(row.world), 2, right=True),
        Column("kernel", lambda row: row.kernel, 6),
        Column("call µs", lambda row: microseconds(row.baseline_us, "call"), 8, right=True),
        Column("calls", lambda row: f"{row.calls.call}+{row.calls.device}", 7, right=True),
        *(Column(f"after {seconds:g} s", partial(_at, seconds=seconds), 25) for seconds in SECONDS),
        Column("at the end", _at, 25),
        Column("s", lambda row: f"{row.points[-1].seconds:.1f}" if row.points else "–", 4, right=True),
        Column("truth", lambda row: f"{row.truth:.3f}" if row.truth else "–", 5, right=True),
        Column("end-to-end", lambda row: row.by("call"), 32),
        Column("device time", lambda row: row.by("device"), 32),
        Column("", failure),
    )
)
"""Pairs (end-to-end + device time), duty, and half widths in percent (end-to-end, device time) after so many seconds."""
