"""Events from the referee to the engine; commands and parts of results are importable from here, too.

One stream of events drives the screens, is written to the journal of a run, and is read back by a replay.
Each event is one JSON object per line, tagged by `type`.
Units: seconds for `seconds` and `at`, microseconds for fields that end in `_us`.
"""

import time
from typing import Any

import msgspec

from sandbox.protocol.kernel_files import Files, Kernel
from sandbox.protocol.result import (  # noqa: F401
    Errors,
    Failure,
    Interval,
    Microseconds,
    OutputError,
    Result,
    RivalResult,
    Roofline,
    Seconds,
    Speedup,
    Transfers,
)
from sandbox.protocol.verdict import Verdict


class Setting(msgspec.Struct, frozen=True):
    """Everything that determines a measurement except the kernel."""

    problem_dir: str
    preset: str
    sizes: dict[str, int]
    """Every size parameter of the problem, with overrides applied."""
    world: int
    device: str
    """One of sandbox.machine.devices.KINDS."""
    dtype: str
    """torch's name: "bfloat16", "float32"..."""


class Contender(msgspec.Struct, frozen=True):
    """A kernel to judge. The name `baseline` with an empty source stands for the problem's baseline."""

    kernel_name: str
    """Name shown in tracebacks, e.g. "kernel.py"."""
    source: str
    """The kernel's text."""
    files: Files = {}
    """The other files of a kernel of several files, by path; then `source` is the text of its kernel.py."""

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.source, self.files)

    @property
    def is_baseline(self) -> bool:
        """Whether it stands for the problem's baseline."""
        return self.kernel_name == "baseline" and not self.source


class Warm(msgspec.Struct, tag_field="type", tag="warm", frozen=True):
    """Prepare the oracle world and a spare contender world for a setting, before the first run."""

    setting: Setting


class RunTerms(Contender, frozen=True, kw_only=True):
    """A kernel, its setting, and how it is judged."""

    setting: Setting
    rounds: int | None = None
    """Number of timing rounds; None: as many as fit the measuring time; 0: correctness only."""
    budget_s: float = 2.5
    """Measuring time in seconds if rounds is None. Timing stops when both clocks can conclude, at the latest after this time."""
    live_s: float = 0.0
    """Seconds that measuring goes on after the verdict, unless something newer is asked; 0: not at all."""
    urgency: int = 0
    """Who waits for the devices first: 0 a person, 1 a sweep, 2 measuring in the background (sandbox/referee/lease.py)."""
    energy: bool = False
    """Whether to measure energy per call, too, after a kernel that passed was timed."""
    versus: Contender | None = None
    """Judge against this kernel instead of the baseline. Both are checked, and the rounds time the two in turn.
    In the events of such a run `baseline_us` is the rival's time, and a speedup is over the rival."""


class Run(RunTerms, tag_field="type", tag="run", frozen=True, kw_only=True):
    """Judge one revision of a kernel. A run in progress must be cancelled first."""

    run_id: str
    peaks: dict[str, float] = {}
    """The stored calibration of this machine, as `Calibrated` gave it; empty: no roofline."""
    offsets: dict[str, list[float]] = {}
    """How much worlds of identical code differ on this machine, as `WorldOffsets` gave it; empty: not known."""
    beside: dict[str, Microseconds] = {}
    """Times of the baseline variants in this setting, by name. The result returns them."""


class Calibrate(msgspec.Struct, tag_field="type", tag="calibrate", frozen=True):
    """Measure the peaks of this machine for the ranks of the setting. Ends with `Calibrated` or `Fatal`."""

    setting: Setting


class TimeTransfers(msgspec.Struct, tag_field="type", tag="time_transfers", frozen=True):
    """Time transfers between the ranks of the setting. Ends with `TransfersTimed` or `Fatal`."""

    setting: Setting


class Cancel(msgspec.Struct, tag_field="type", tag="cancel", frozen=True):
    """End the run in progress; it finishes with `Cancelled`."""

    run_id: str


AnyCommand = Warm | Run | Calibrate | TimeTransfers | Cancel
"""When the engine closes the pipe, the referee kills all worlds and ends."""

decode_command = msgspec.json.Decoder(AnyCommand).decode


VERSION = 1

PHASES = ("prepare", "load", "compile", "check", "time")
"""The phases of a run, in order. `prepare` opens a problem or a new size in the oracle world and the reference worlds."""


class Event(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """Base of all events. `at` is seconds on the referee's monotonic clock."""

    at: float = 0.0


class RunEvent(Event, frozen=True, kw_only=True):
    """Base of the events of a run."""

    run_id: str = ""
    """Empty where a measurement of this machine waits. The referee's pipe sets that of the run in progress."""


class Ready(Event, tag="ready", frozen=True, kw_only=True):
    """The referee is up."""

    pid: int
    jail: str
    version: int = VERSION


class WorldChanged(Event, tag="world", frozen=True, kw_only=True):
    """A world is starting, ready or gone."""

    role: str
    """A value of sandbox.protocol.launch_plan.Role."""
    state: str
    """ "starting", "ready" or "gone"."""
    world: int
    seconds: float = 0.0


class RunStarted(RunEvent, tag="run_started", frozen=True, kw_only=True):
    """First event of a run."""

    setting: Setting
    kernel_name: str
    sha256: str


class LeaseHolder(msgspec.Struct, frozen=True):
    """The run or profile that has the devices. The kernel tells user and process; the rest is another user's word."""

    pid: int
    user: str
    problem: str
    since: float
    """Seconds since the epoch."""

    @property
    def words(self) -> str:
        """ "gemm_allreduce of ada, process 4711, since 14:02:11"."""
        clock = time.strftime("%H:%M:%S", time.localtime(self.since))
        return f"{self.problem} of {self.user}, process {self.pid}, since {clock}"


class Waiting(RunEvent, tag="waiting", frozen=True, kw_only=True):
    """The run waits because another run or profile has its devices; sent again when that changes. Ends with `PhaseStarted`."""

    holder: LeaseHolder | None = None
    """None: not known."""
    place: int = 0
    """Place in the queue, from 1; 0: not known."""
    waiting: int = 0
    """Number of those who wait, with this one."""

    @property
    def words(self) -> str:
        """ "gemm_allreduce of ada, process 4711, since 14:02:11; place 2 of 3", or that it is not known."""
        held = self.holder.words if self.holder is not None else "no details known"
        return f"{held}; place {self.place} of {self.waiting}" if self.waiting > 1 else held


class PhaseStarted(RunEvent, tag="phase_started", frozen=True, kw_only=True):
    """A phase began. `limit_s` is its deadline."""

    phase: str
    limit_s: float


class PhaseEnded(RunEvent, tag="phase_ended", frozen=True, kw_only=True):
    """A phase ended without a failure."""

    phase: str
    seconds: float


class RankChecked(RunEvent, tag="rank_checked", frozen=True, kw_only=True):
    """One rank's outputs were compared (worst iteration so far)."""

    rank: int
    ok: bool
    outputs: list[OutputError]


class Checked(RunEvent, tag="checked", frozen=True, kw_only=True):
    """The correctness verdict, before timing."""

    verdict: Verdict
    seconds: float
    """Since RunStarted."""
    failure: Failure | None = None
    paper_rule: str = ""
    """ "match" or "mismatch" under upstream's rule (atol = rtol = 1e-2)."""


class Timed(RunEvent, tag="timed", frozen=True, kw_only=True):
    """A round is done: both sides ran the same iterations."""

    round: int
    rounds: int
    """Expected number of all rounds; it may shrink."""
    calls: int
    baseline_us: float
    """Per call in this round, maximum over ranks, referee's clock."""
    contender_us: float
    call: Interval
    """Speedup so far."""
    device: Interval | None = None


class Log(RunEvent, tag="log", frozen=True, kw_only=True):
    """Text that a rank printed. It is untrusted and may have control characters."""

    rank: int = -1
    """-1: the referee itself."""
    text: str


class Finished(RunEvent, tag="finished", frozen=True, kw_only=True):
    """Last event of a run that was judged."""

    sha256: str
    result: Result


class Judged(RunEvent, tag="judged", frozen=True, kw_only=True):
    """The verdict so far of a run that goes on measuring. A cancel then ends it with `Finished`."""

    sha256: str
    result: Result


class Cancelled(RunEvent, tag="cancelled", frozen=True, kw_only=True):
    """Last event of a run that was cancelled."""

    phase: str
    result: Result | None = None
    """A pass without times, if the kernel was found to be correct before."""


class Refused(RunEvent, tag="refused", frozen=True, kw_only=True):
    """The setting is invalid (sizes, world or dtype), so nothing was judged."""

    message: str
    advice: str


class Calibrated(Event, tag="calibrated", frozen=True, kw_only=True):
    """Peaks of the slowest rank while all ranks are busy. Keys and units: sandbox.rank.devices.device.Device.peaks."""

    world: int
    device: str
    peaks: dict[str, float]
    seconds: float


class TransfersTimed(Event, tag="transfers_timed", frozen=True, kw_only=True):
    """Times of transfers between the ranks, two ranks at a time."""

    world: int
    device: str
    transfers: Transfers
    seconds: float


class WorldOffsets(Event, tag="world_offsets", frozen=True, kw_only=True):
    """What the reference worlds of a run have added to this machine's history. It belongs to no run's journal."""

    setting: Setting
    masses: dict[str, list[float]]
    """As `sandbox.timing.clocks.Clock.offsets`: they replace those of the same name."""


class Fatal(Event, tag="fatal", frozen=True, kw_only=True):
    """The referee or the oracle world failed outside a run."""

    message: str
    text: str = ""


AnyEvent = (
    Ready
    | WorldChanged
    | RunStarted
    | Waiting
    | PhaseStarted
    | PhaseEnded
    | RankChecked
    | Checked
    | Timed
    | Log
    | Judged
    | Finished
    | Cancelled
    | Refused
    | Calibrated
    | TransfersTimed
    | WorldOffsets
    | Fatal
)

BEYOND = 1e99
"""Stands for a number that is not finite, which JSON does not have: an error of this size has no bound."""


def encode(message: Any) -> bytes:
    """An event, a command or the header of a run as JSON. Its numbers are finite: at most BEYOND, which replaces NaN too."""
    return msgspec.json.encode(_finite(msgspec.to_builtins(message)))


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if -BEYOND < value < BEYOND else -BEYOND if value < 0 else BEYOND
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


decode_event = msgspec.json.Decoder(AnyEvent).decode
