"""The result of a run and its parts. Microseconds in fields that end in `_us`, seconds in `Seconds`."""

import re

import msgspec

from sandbox.protocol.verdict import ADVICE, Verdict


class Batches(msgspec.Struct, frozen=True):
    """A pair of batches of the same iterations, in microseconds per call, without the harness overhead."""

    calls: int
    baseline_us: float
    contender_us: float
    baseline_first: bool
    reference: int = 0
    """Index of the reference world."""
    at_s: float = 0.0
    """When it was timed, in seconds from the start of timing."""


class Samples(msgspec.Struct, frozen=True):
    """All pairs of a run, by clock."""

    call: list[Batches] = []
    device: list[Batches] = []
    history: dict[str, list[float]] = {}
    """What was known of world offsets before (`Clock.history`), by clock; the intervals depend on it."""
    harness_us: float = 0.0
    """Harness overhead per call in end-to-end time, already subtracted."""
    empty_gate_us: float = 0.0
    """Harness overhead per batch in device time: the gate and the output copies."""
    foreign_us: dict[str, list[float]] = {}
    """Longest foreign work on the GPUs before each watched batch, by kind of batch."""


class SideEnergy(msgspec.Struct, frozen=True):
    """Power and energy of one side of a run on GPUs."""

    watts: float
    """Mean power of a GPU over a row of calls."""
    joules: float
    """Energy of all ranks' GPUs for one call."""
    error: float
    """Share by which both may be off, by the steps of the counters."""


class Energy(msgspec.Struct, frozen=True):
    """Power and energy of both sides; or why they are not known."""

    baseline: SideEnergy | None = None
    """The rival's if there is one."""
    contender: SideEnergy | None = None
    missing: str = ""


class OutputError(msgspec.Struct, frozen=True):
    """The error of one output of one rank against the float64 oracle, with its limits.

    rms: ‖y − y*‖ / ‖y*‖. max: max |y − y*| / (|y*| + rms(y*)). Limits are 0 for outputs that must match exactly.
    """

    output: str
    ok: bool
    exact: bool
    rms: float
    max: float
    baseline_rms: float
    baseline_max: float
    rms_limit: float
    max_limit: float
    wrong: int = 0
    """Elements beyond the elementwise limit."""
    total: int = 0
    shape: list[int] = []
    first_wrong: list[int] | None = None
    """Index of the first wrong element; the first one that wrongly is or is not finite, if there is one."""
    expected: str = ""
    got: str = ""
    where: list[float] = []
    """Share of wrong elements in up to 32 equal parts of the flattened output, for a map."""


class Failure(msgspec.Struct, frozen=True):
    """Why a kernel failed. Its texts come from an untrusted process: show them, never parse them."""

    phase: str
    message: str
    advice: str
    rank: int | None = None
    output: str | None = None
    index: list[int] | None = None
    expected: str | None = None
    got: str | None = None
    wrong_share: float | None = None
    line: int | None = None
    """Line in the kernel file, 1-based, when known."""
    text: str = ""
    """Traceback or compiler output, bounded to 64 KiB."""


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its interval of three standard errors (sandbox/timing/interval.py)."""

    median: float
    low: float
    high: float


class Speedup(msgspec.Struct, frozen=True):
    """Baseline time over contender time, by clock; None for a clock that can claim nothing."""

    call: Interval | None
    device: Interval | None


class Microseconds(msgspec.Struct, frozen=True):
    """Median time per call by clock."""

    call: float | None
    device: float | None


class Errors(msgspec.Struct, frozen=True):
    """The worst output's errors over all ranks and checked iterations."""

    rms: float
    max: float
    baseline_rms: float
    baseline_max: float


class Roofline(msgspec.Struct, frozen=True):
    """The machine's lower bound of the time, and the kernel's percentage of it."""

    bound_us: float
    percent: float
    limiter: str


class Seconds(msgspec.Struct, frozen=True):
    """The durations of a run's phases."""

    load: float = 0.0
    compile: float = 0.0
    check: float = 0.0
    time: float = 0.0
    total: float = 0.0


class KernelVerdict(msgspec.Struct, frozen=True):
    """The verdict on a kernel, and why."""

    verdict: Verdict
    detail: str
    failure: Failure | None


class RivalResult(KernelVerdict, frozen=True):
    """The result of the other kernel of a run between two contenders."""

    sha256: str


class BareResult(KernelVerdict, frozen=True):
    """A result without its samples. A field that is added here is in journals, in `run --json` and in the index."""

    paper_rule: str | None = None
    error: Errors | None = None
    speedup: Speedup | None = None
    baseline_us: Microseconds | None = None
    contender_us: Microseconds | None = None
    roofline: Roofline | None = None
    seconds: Seconds = Seconds()
    jail: str = ""
    sealed: bool = False
    outcome: str = ""
    """ "faster", "slower", "even" or "too noisy", by `clock`; empty if nothing was timed."""
    clock: str = ""
    """The clock of the outcome: "call", or "device" if end-to-end time is too noisy; empty if nothing was timed."""
    told: str = ""
    """The conclusion from both clocks, in one sentence."""
    advice: str = ""
    """What would make the measurement more precise; empty if that is not needed."""
    rounds: int = 0
    rival: RivalResult | msgspec.UnsetType | None = msgspec.UNSET
    """Set for a run between two contenders. `baseline_us` is its time. There is no speedup if either failed."""
    labels: list[str] = []
    """Hints about the source of a passing kernel's speed (sandbox/referee/labels.py)."""
    beside: dict[str, Microseconds] = {}
    """Times of the baseline variants in this setting, by name, measured before."""
    energy: Energy | msgspec.UnsetType | None = msgspec.UNSET
    """Only if it was asked for and the kernel passed."""


class Result(BareResult, frozen=True):
    """The result of a run, as the referee sends it."""

    samples: Samples = Samples()


def failure_words(failure: Failure) -> str:
    """The failure in one line: phase, rank, message, place, values and advice. Its texts come from an untrusted process."""
    where = failure.phase if failure.rank is None else f"{failure.phase}, rank {failure.rank}"
    parts = [f"{where}: {failure.message.rstrip('.')}"]
    if failure.line is not None and not names_line(failure.message, failure.line):
        parts.append(f"line {failure.line}")
    if failure.index is not None:
        index = ", ".join(map(str, failure.index))
        parts.append(f"first wrong {failure.output or 'output'}[{index}]")
    if failure.expected is not None or failure.got is not None:
        parts.append(f"expected {failure.expected}, got {failure.got}")
    words = "; ".join(parts) + (f". {failure.advice}" if failure.advice else "")
    return " ".join(words.split())


def names_line(text: str, line: int) -> bool:
    """Whether a text already names the line, in words or as a compiler does ("kernel.py:6: ...")."""
    return re.search(rf"\bline {line}\b|[A-Za-z_]:{line}:", text) is not None


TEXT = 65536
"""Characters of a traceback that are kept, from its end."""


def unjudged_result(verdict: Verdict, failure: Failure, jail: str, sealed: bool) -> Result:
    """The result of a run whose kernel was not judged."""
    return Result(verdict, failure_words(failure), failure, jail=jail, sealed=sealed)


def harness_error_result(
    phase: str, message: str, text: str, jail: str = "", sealed: bool = False, advice: str = ""
) -> Result:
    """A HARNESS_ERROR in a phase: the kernel is not at fault. text: a traceback or prints. advice: instead of the usual."""
    advice = advice or ADVICE[Verdict.HARNESS_ERROR]
    failure = Failure(phase=phase, message=message, advice=advice, text=text[-TEXT:])
    return unjudged_result(Verdict.HARNESS_ERROR, failure, jail, sealed)


class PairTimes(msgspec.Struct, frozen=True):
    """Times of one transfer between two ranks, with all other ranks idle."""

    ranks: tuple[int, int]
    us: dict[str, list[float]]
    """Microseconds by way and then by size, in the order of `Transfers.sizes`."""


class Transfers(msgspec.Struct, frozen=True):
    """Times of every way between every two ranks. A transfer ends when the receiver has its signal."""

    sizes: list[int]
    """Bytes, in ascending order."""
    pairs: list[PairTimes]
    absent: dict[str, str] = {}
    """Ways that this machine does not have, with the reason."""

    @property
    def ways(self) -> list[str]:
        """The ways that were measured, in the order of measuring."""
        return list(self.pairs[0].us) if self.pairs else []

    def us(self, way: str) -> list[float]:
        """Microseconds by size between the slowest two ranks."""
        return [max(times) for times in zip(*(pair.us[way] for pair in self.pairs), strict=True)]

    def beside(self, other: "Transfers") -> "Transfers":
        """These ways and those of `other` between the same ranks."""
        more = {pair.ranks: pair.us for pair in other.pairs}
        pairs = [PairTimes(pair.ranks, pair.us | more.get(pair.ranks, {})) for pair in self.pairs]
        return Transfers(self.sizes, pairs, self.absent | other.absent)


def joined(measured: list[Transfers]) -> Transfers:
    """Joins the measurements of all ranks, each of its own pairs."""
    pairs = sorted((pair for each in measured for pair in each.pairs), key=lambda pair: pair.ranks)
    return Transfers(measured[0].sizes, pairs, measured[0].absent)


def gigabytes_per_second(nbytes: int, us: float) -> float:
    """The bandwidth in 10^9 bytes per second."""
    return nbytes / us / 1e3
