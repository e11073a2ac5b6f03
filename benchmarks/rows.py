"""Rows of a table of runs: what is judged, and the result of each run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from arena.errors import MachineError, UsageError
from arena.records.run_record import fields_of
from arena.runs.judge import Judge, Judgement, RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.named_kernels import BASELINE, VARIANTS, named_kernel
from benchmarks.kernels import kernel_paths
from problems.catalogue import Catalogue, load_catalogue
from problems.specification import Problem
from sandbox.protocol.events import Microseconds, Result, Roofline, Seconds, Setting, Speedup
from sandbox.protocol.verdict import Verdict

REFUSED = "REFUSED"
"""Shown in place of a verdict if the setting cannot be run."""
LOST = 3
"""Harness errors in a row after which a table ends."""


@dataclass(frozen=True)
class PlannedRun:
    """One run to make: of a kernel by its word, as for `run`, or of one of the kit's examples by its name."""

    problem: Problem
    kernel: str
    choice: Choice
    size: str = ""
    """The size in words; empty: the preset's name."""
    source: str = ""
    """The text that is judged; empty: that of the word."""


class Counts(msgspec.Struct, frozen=True):
    """Numbers by clock."""

    call: int = 0
    device: int = 0


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a problem in a setting. If none could be chosen, it has what was asked for; world 0: any."""

    id: int
    problem: str
    preset: str = ""
    sizes: dict[str, int]
    world: int
    device: str = ""
    dtype: str
    verdict: str
    detail: str = ""
    seconds: float = 0.0


Row = TypeVar("Row", bound=SettingRow)


class RunRow(SettingRow, frozen=True, kw_only=True):
    """One run. Microseconds in `*_us`; speedups over the baseline as called."""

    size: str
    kernel: str
    outcome: str = ""
    clock: str = ""
    """The clock of the headline and of the outcome: "call" or "device"."""
    told: str = ""
    rounds: int = 0
    baseline_us: Microseconds | None = None
    kernel_us: Microseconds | None = None
    speedup: Speedup | None = None
    roofline: Roofline | None = None
    text: str = ""
    """The end of the traceback or compiler output of a kernel that failed."""
    pairs: Counts = Counts()
    """Pairs of batches from which the intervals are computed."""
    calls: Counts = Counts()
    """Calls of a batch."""
    harness_us: Microseconds | None = None
    """Overhead per call, already subtracted."""
    phases: Seconds | None = None
    """The durations of the run's phases."""

    @property
    def fault(self) -> bool:
        """Whether the run should have passed and did not, or the baseline was called faster than itself.

        A baseline variant may fail: not every baseline can be captured in a graph. So may a problem that does not run
        in every world.
        """
        if self.kernel == BASELINE and self.outcome == "faster":
            return True
        if self.kernel in VARIANTS:
            return self.verdict == Verdict.HARNESS_ERROR
        return self.verdict not in (Verdict.PASS, REFUSED)


async def judged_row(
    judge: Judge, planned: PlannedRun, settings: Settings, catalogue: Catalogue, rounds: int | None
) -> RunRow:
    """Makes one run. A setting that cannot be run is a row with `REFUSED`. rounds: None for the default budget.

    Raises:
        MachineError: the device or enough GPUs are missing, or the run was cancelled.
    """
    started, problem = time.monotonic(), planned.problem
    setting = None
    try:
        setting = choose_setting(problem, planned.choice, settings)
        named = named_kernel(planned.kernel, problem, catalogue, setting.device)
        name, source = ("kernel.py", planned.source) if planned.source else named or _example(planned.kernel)
        request = RunRequest(problem=problem, setting=setting, kernel_name=name, source=source, rounds=rounds)
        judgement = await judge_to_end(judge, request)
    except UsageError as error:
        return _run_row(planned, setting, REFUSED, error.message, started)
    return finished_row(planned, judgement, started)


def request_of(problem: str, choice: Choice, name: str, source: str, rounds: int | None = None) -> RunRequest:
    """A run of a kernel's text, with the default settings. Raises as `choose_setting`."""
    found = load_catalogue().find(problem)
    setting = choose_setting(found, choice, Settings())
    return RunRequest(problem=found, setting=setting, kernel_name=name, source=source, rounds=rounds)


def finished_row(planned: PlannedRun, judgement: Judgement, started: float) -> RunRow:
    """The row of a run with a result. started: on the monotonic clock."""
    result, setting = judgement.result, judgement.header.setting
    pairs, calls = counts(result)
    return msgspec.structs.replace(
        _run_row(planned, setting, result.verdict.value, result.detail, started),
        **fields_of(result, "outcome clock told rounds baseline_us speedup roofline"),
        kernel_us=result.contender_us,
        text=result.failure.text[-2000:] if result.failure else "",
        pairs=pairs,
        calls=calls,
        harness_us=harness(result),
        phases=result.seconds,
    )


def counts(result: Result) -> tuple[Counts, Counts]:
    """(pairs, calls of a batch) by clock."""
    call, device = result.samples.call, result.samples.device
    return (
        Counts(call=len(call), device=len(device)),
        Counts(call=call[0].calls if call else 0, device=device[0].calls if device else 0),
    )


def harness(result: Result) -> Microseconds | None:
    """The overhead per call; None if nothing was timed."""
    samples = result.samples
    if not samples.call:
        return None
    device = samples.empty_gate_us / samples.device[0].calls if samples.device else None
    return Microseconds(call=samples.harness_us, device=device)


def _run_row(planned: PlannedRun, setting: Setting | None, verdict: str, detail: str, started: float) -> RunRow:
    known = {"size": planned.size or planned.choice.preset or "", "kernel": planned.kernel}
    return bare_row(RunRow, planned.problem, setting or planned.choice, verdict, detail, started, **known)


def bare_row(
    kind: type[Row], problem: Problem, place: Setting | Choice, verdict: str, detail: str, started: float, **more: Any
) -> Row:
    """A row without measurements. started: on the monotonic clock."""
    asked = {name: getattr(place, name) or "" for name in ("preset", "device", "dtype")}
    return kind(
        **asked, id=problem.id, problem=problem.slug, sizes=place.sizes, world=place.world or 0,
        verdict=verdict, detail=detail, seconds=round(time.monotonic() - started, 2), **more,
    )  # fmt: skip


def require_harness(rows: Sequence[SettingRow], lost: str = Verdict.HARNESS_ERROR) -> None:
    """Raises MachineError if the last `LOST` rows have this verdict, because nothing can be judged here then."""
    if [row.verdict for row in rows[-LOST:]] == [lost] * LOST:
        words = f"{LOST} times {lost} in a row; the last: {rows[-1].detail}"
        raise MachineError(words, "run `pkb-arena doctor`")


def _example(name: str) -> tuple[str, str]:
    path = kernel_paths()[name]
    return path.name, path.read_text(encoding="utf-8")
