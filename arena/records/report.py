"""The report of a run, the JSON object of `run --json`. Fields are added, never renamed."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from arena.records.header import RunHeader
from arena.words.untrusted_text import printable
from sandbox.protocol import events
from sandbox.protocol.result import Energy, harness_error_result
from sandbox.protocol.verdict import Verdict


class OtherSize(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that passed, judged in another setting."""

    sizes: dict[str, int]
    dtype: str
    world: int
    verdict: Verdict
    detail: str
    run_id: str
    outcome: str = ""
    """As `RunReport.outcome`; empty when nothing was timed."""
    clock: str = ""
    speedup: events.Speedup | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the kernel is correct and faster here, too; None if it is correct and its speed is not known."""
        return holds_here(self.verdict, self.outcome)


def holds_here(verdict: Verdict, outcome: str) -> bool | None:
    """Returns `OtherSize.holds` for this verdict and this outcome in one setting."""
    if verdict is not Verdict.PASS:
        return False
    return None if outcome in ("", "too noisy") else outcome == "faster"


class _Held(Protocol):
    @property
    def holds(self) -> bool | None: ...


def holds(others: Iterable[_Held]) -> str:
    """Returns in which other settings a faster kernel is faster, too: "all", "some", "none"; empty if not known."""
    told = [other.holds for other in others if other.holds is not None]
    if not told:
        return ""
    return "all" if all(told) else "some" if any(told) else "none"


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """Units: microseconds in `*_us`, seconds in `seconds`; errors are relative to the float64 oracle."""

    run_id: str
    problem: str
    id: int
    category: str
    kernel: str
    sha256: str
    device: str
    world: int
    dtype: str
    preset: str
    sizes: dict[str, int]
    verdict: Verdict
    outcome: str
    """ "faster", "slower", "even" or "too noisy", by the clock of the headline; empty when nothing was timed."""
    detail: str
    failure: events.Failure | None
    paper_rule: str | None
    error: events.Errors | None
    speedup: events.Speedup | None
    baseline_us: events.Microseconds | None
    contender_us: events.Microseconds | None
    rounds: int
    roofline: events.Roofline | None
    seconds: events.Seconds
    jail: str
    sealed: bool
    labels: list[str] = []
    beside: dict[str, events.Microseconds] = {}
    clock: str = ""
    """The headline's clock: "call", or "device" if end-to-end time is too noisy; empty when nothing was timed."""
    told: str = ""
    """What both clocks say, in a sentence."""
    advice: str = ""
    """What would make a clock less noisy; empty if no clock is too noisy."""
    other_sizes: list[OtherSize] | msgspec.UnsetType = msgspec.UNSET
    """If the kernel passed and other settings were requested (`arena/runs/other_sizes.py`); else not in the JSON."""
    holds_at_other_sizes: str | msgspec.UnsetType = msgspec.UNSET
    """What `holds` returns for `other_sizes`; not in the JSON without them."""

    energy: Energy | msgspec.UnsetType = msgspec.UNSET
    """If it was requested (`run --energy`) and the kernel passed; else not in the JSON."""
    rival: events.RivalResult | msgspec.UnsetType = msgspec.UNSET
    """The kernel that took the baseline's place, if there was one; else not in the JSON. `baseline_us` is its time."""

    @property
    def tried_other_sizes(self) -> bool:
        """Whether other settings were judged as well."""
        return not isinstance(self.other_sizes, msgspec.UnsetType)

    @property
    def one_size_only(self) -> bool:
        """Whether the kernel, which passed here, failed in another setting: it was made for one shape."""
        others = [] if isinstance(self.other_sizes, msgspec.UnsetType) else self.other_sizes
        return any(other.verdict is not Verdict.PASS for other in others)


def report(header: RunHeader, result: events.Result) -> RunReport:
    """The report of a finished run."""
    setting = header.setting
    return RunReport(
        run_id=header.run_id,
        problem=header.slug,
        id=header.problem_id,
        category=header.category,
        kernel=header.kernel_path or header.kernel_name,
        sha256=header.sha256,
        device=setting.device,
        world=setting.world,
        dtype=setting.dtype,
        preset=setting.preset,
        sizes=setting.sizes,
        verdict=result.verdict,
        outcome=result.outcome,
        detail=one_line(result.detail),
        failure=result.failure,
        paper_rule=result.paper_rule,
        error=result.error,
        speedup=result.speedup,
        baseline_us=result.baseline_us,
        contender_us=result.contender_us,
        rounds=result.rounds,
        roofline=result.roofline,
        seconds=result.seconds,
        jail=result.jail,
        sealed=result.sealed,
        labels=result.labels,
        beside=result.beside,
        clock=result.clock,
        told=result.told,
        advice=result.advice,
        energy=result.energy or msgspec.UNSET,
        rival=result.rival or msgspec.UNSET,
    )


def at_other_sizes(report: RunReport, others: Sequence[OtherSize]) -> RunReport:
    """The report of a kernel that passed, with its results in other settings."""
    return msgspec.structs.replace(report, other_sizes=list(others), holds_at_other_sizes=holds(others))


def output_of(failure: events.Failure) -> str:
    """Returns the traceback or the compiler's output, without a first or last line that repeats the message."""
    message = printable(failure.message).strip()
    lines = printable(failure.text).strip("\n").rstrip().split("\n")
    first, last = lines[0].strip(), lines[-1].strip()
    # A message that was too long has lost its end. Then the first line repeats the traceback's last line.
    if len(lines) > 1 and first and (message.endswith(first) or first == last):
        lines = lines[1:]
    if lines[-1].strip() and message.endswith(lines[-1].strip()):
        lines = lines[:-1]
    return "\n".join(lines).strip("\n")


def one_line(text: str) -> str:
    """Text without control characters and line breaks."""
    return " ".join(printable(text).split())


def harness_error(header: RunHeader, phase: str, message: str, text: str = "") -> events.Finished:
    """The end of a run whose referee failed."""
    result = harness_error_result(phase, message, text)
    return events.Finished(run_id=header.run_id, sha256=header.sha256, result=result)
