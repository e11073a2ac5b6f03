"""A finished run: what was asked, what was found, and what follows from both."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from arena.records.code_hash import code_hash
from arena.records.header import RunHeader
from arena.records.voids import Void
from arena.words.headline import by_clock
from arena.words.untrusted_text import one_line
from sandbox.machine.backends import label_in
from sandbox.protocol.events import AnyEvent, Cancelled, Finished, Interval, Judged, Result, Speedup
from sandbox.protocol.result import BareResult
from sandbox.protocol.verdict import Verdict
from sandbox.timing.interval import detectable_percent

SHORT_CHARACTERS = 2000
"""Characters of a traceback or compiler output that `shortened` keeps. The run's own journal has all of it."""
View = TypeVar("View", bound=msgspec.Struct)


class BriefResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of results says of a run."""

    run_id: str
    verdict: str
    """A `Verdict`; in sweeps also why there was no run."""
    outcome: str = ""
    """As `RunRecord.outcome`; empty when nothing was timed."""
    clock: str = ""
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the kernel is correct."""
        return self.verdict == Verdict.PASS


class OtherSize(BriefResult, frozen=True, kw_only=True):
    """A kernel that passed, judged in another setting."""

    sizes: dict[str, int]
    dtype: str
    world: int
    speedup: Speedup | None = None


class RunRecord(BareResult, frozen=True, kw_only=True, rename={"slug": "problem", "problem_id": "id"}):
    """A finished run: the JSON object of `run --json`, and a row of the index. Fields are added, never renamed.

    Units: microseconds in `*_us`, seconds in `seconds`; errors are relative to the float64 oracle.
    """

    run_id: str
    created: float = 0.0
    """Seconds since the epoch."""
    slug: str
    problem_id: int
    category: str
    player: str = ""
    kernel: str
    """Its path, or its name if it was not read from a file."""
    kernel_name: str = ""
    sha256: str
    code: str = ""
    """Hash of the code (`arena.records.code_hash`)."""
    device: str
    world: int
    dtype: str
    preset: str
    preset_sizes: bool = True
    sizes: dict[str, int]
    machine: str = ""
    """The machine's fingerprint (`arena.machine.facts`)."""
    versus: str = ""
    """Name of the kernel in the baseline's place; empty: the baseline itself."""
    origin: str = ""
    """SHA-256 of the kernel that the player started from, if it took the baseline's place."""
    other_than: str = ""
    """For a run in a random setting at other sizes: the id of the run that it belongs to; else empty."""
    other_sizes: list[OtherSize] | msgspec.UnsetType = msgspec.UNSET
    """If the kernel passed and other settings were requested (`arena/runs/other_sizes.py`); else not in the JSON."""
    holds_at_other_sizes: str | msgspec.UnsetType = msgspec.UNSET
    """What `holds` returns for `other_sizes`; not in the JSON without them."""
    voided: Void | msgspec.UnsetType = msgspec.UNSET
    """Why the run is in no ranking. Only the index sets it, from the journal of voids."""

    @property
    def passed(self) -> bool:
        """Whether the kernel is correct."""
        return self.verdict is Verdict.PASS

    @property
    def interval(self) -> Interval | None:
        """The speedup by the clock of the headline; None if nothing was timed."""
        return by_clock(self.speedup, self.clock)

    @property
    def median(self) -> float | None:
        """The middle of `interval`."""
        return self.interval.median if self.interval is not None else None

    def detectable(self, clock: str) -> float | None:
        """Returns the smallest detectable difference of a clock, in percent; None if it timed nothing."""
        interval = by_clock(self.speedup, clock)
        return detectable_percent(interval) if interval is not None else None

    @property
    def percent(self) -> float | None:
        """Percent of the roofline's bound."""
        return self.roofline.percent if self.roofline is not None else None

    @property
    def time_us(self) -> float | None:
        """The kernel's median time by the clock of the headline, in microseconds."""
        return by_clock(self.contender_us, self.clock)

    @property
    def gap_closed(self) -> float | None:
        """(baseline - kernel) / (baseline - bound), from 0 to 1, by the clock that percent of bound uses.

        0: the speedup's whole 99 % interval is not above 1. Noise therefore never counts as a closed gap.
        1: the kernel reaches the bound. None: there are no times or no roofline, or the baseline reaches the bound itself.
        """
        if self.roofline is None or self.contender_us is None:
            return None
        speed = by_clock(self.speedup, "device" if self.contender_us.device else "call")
        bound = self.roofline.percent / 100  # in units of the kernel's time; the baseline's time is `median` of them
        if speed is None or speed.median <= bound:
            return None
        return 0.0 if speed.low <= 1 else min(1.0, (speed.median - 1) / (speed.median - bound))

    @property
    def backend(self) -> str:
        """The label of the kernel's backend (`sandbox.machine.backends`); empty: none, or the kernel did not pass."""
        return label_in(self.labels)

    @property
    def is_ranked(self) -> bool:
        """Whether the run has its preset's own sizes and belongs to no other run (`other_than`)."""
        return self.preset_sizes and not self.other_than

    @property
    def others(self) -> list[OtherSize]:
        """The results in other settings; empty if none were judged."""
        return self.other_sizes or []

    @property
    def tried_other_sizes(self) -> bool:
        """Whether other settings were judged as well."""
        return not isinstance(self.other_sizes, msgspec.UnsetType)

    @property
    def one_size_only(self) -> bool:
        """Whether the kernel, which passed here, failed in another setting: it was made for one shape."""
        return not all(other.passed for other in self.others)

    def with_others(self, others: Sequence[OtherSize]) -> "RunRecord":
        """Returns the record of a kernel that passed, with its results in other settings."""
        return msgspec.structs.replace(self, other_sizes=list(others), holds_at_other_sizes=holds(others))

    def pooled(self, interval: Interval, outcome: str, clock: str) -> "RunRecord":
        """Returns the record with the figures of all measurements of its code (`arena.records.ranking`)."""
        speedup = msgspec.structs.replace(self.speedup or Speedup(None, None), **{clock or "call": interval})
        return msgspec.structs.replace(self, speedup=speedup, outcome=outcome, clock=clock)

    @property
    def shortened(self) -> "RunRecord":
        """The record with the failure's text cut to its last characters."""
        failure = self.failure
        if failure is None or len(failure.text) <= SHORT_CHARACTERS:
            return self
        return msgspec.structs.replace(
            self, failure=msgspec.structs.replace(failure, text=failure.text[-SHORT_CHARACTERS:])
        )


class Unrun(msgspec.Struct, frozen=True):
    """A revision that was kept without a run."""

    created: float
    sha256: str
    time_us: ClassVar[None] = None


def result_in(header: RunHeader, event: AnyEvent) -> Result | None:
    """The result that an event has: a verdict, or a pass without times of a run that was cancelled."""
    if isinstance(event, Judged | Finished) or (isinstance(event, Cancelled) and not header.versus):
        return event.result
    return None


def record_of(header: RunHeader, result: Result) -> RunRecord:
    """Returns the record of a finished run."""
    return view(
        RunRecord, header, header.setting, result,
        kernel=header.kernel_path or header.kernel_name, detail=one_line(result.detail),
        code=code_hash(header.kernel),
    )  # fmt: skip


def view(kind: type[View], /, *sources: object, **more: object) -> View:
    """Returns a struct of another type: each field from `more`, else from the first source with an attribute of its name.

    Raises:
        TypeError: a field without a default is in none of them.
    """
    for name in kind.__struct_fields__:
        source = next((each for each in sources if hasattr(each, name)), None)
        if name not in more and source is not None:
            more[name] = getattr(source, name)
    return kind(**more)


def fields_of(source: object, names: str) -> dict[str, Any]:
    """Returns attributes by their names, which are separated by spaces."""
    return {name: getattr(source, name) for name in names.split()}


def _holds_here(result: "OtherSize | RunRecord") -> bool | None:
    """Whether the kernel is correct and faster; None if it is correct and its speed is not known."""
    if not result.passed:
        return False
    return None if result.outcome in ("", "too noisy") else result.outcome == "faster"


def holds(others: "Iterable[OtherSize | RunRecord]") -> str:
    """Returns in which other settings a faster kernel is faster, too: "all", "some", "none"; empty if not known."""
    told = [here for here in map(_holds_here, others) if here is not None]
    if not told:
        return ""
    return "all" if all(told) else "some" if any(told) else "none"


def json_of(record: RunRecord) -> dict[str, Any]:
    """The object of `run --json`. A timed clock that claims nothing has its median, and null for both ends."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    if found["speedup"] is None or record.baseline_us is None or record.contender_us is None:
        return found
    for clock, interval in found["speedup"].items():
        baseline, contender = getattr(record.baseline_us, clock), getattr(record.contender_us, clock)
        if interval is None and baseline and contender:
            found["speedup"][clock] = {"median": baseline / contender, "low": None, "high": None}
    return found


def record_in(found: Mapping[str, Any]) -> RunRecord:
    """Returns the record of an object of `json_of`.

    Raises:
        ValueError: it is no such object.
    """
    speedup = found.get("speedup")
    if isinstance(speedup, dict):
        claims = {clock: each if each and each.get("low") is not None else None for clock, each in speedup.items()}
        found = {**found, "speedup": claims}
    return msgspec.convert(found, RunRecord)
