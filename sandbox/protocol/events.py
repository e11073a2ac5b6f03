"""Commands and events between the engine and the referee.

One stream of events drives the screens, is written to the journal of a run, and is read back by a replay.
Each command and event is one JSON object per line, tagged by `type`.
Units: seconds for `seconds` and `at`, microseconds for fields that end in `_us`.
"""

import time

import msgspec

from sandbox.protocol.kernel_files import Files, Kernel
from sandbox.protocol.samples import Samples
from sandbox.protocol.verdict import Verdict

VERSION = 1

PHASES = ("prepare", "load", "compile", "check", "time")
"""The phases of a run, in order. `prepare` opens a problem or a new size in the oracle world and the reference worlds."""


# --- commands: engine -> referee -------------------------------------------------------------------------


class Command(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all commands."""


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


class Warm(Command, tag="warm", frozen=True):
    """Prepare the oracle world and a spare contender world for a setting, before the first run."""

    setting: Setting


class Run(Command, tag="run", frozen=True):
    """Judge one revision of a kernel. A run in progress must be cancelled first."""

    run_id: str
    setting: Setting
    kernel_name: str
    """Name shown in tracebacks, e.g. "kernel.py"."""
    source: str
    """The kernel's text. With kernel_name `baseline` and an empty source, the baseline runs against itself."""
    files: Files = {}
    """The other files of a kernel of several files, by path; then `source` is the text of its kernel.py."""
    rounds: int | None = None
    """Number of timing rounds; None: adaptive within the budget; 0: correctness only."""
    budget_s: float = 1.0
    """Time budget of the timing phase if rounds is None."""
    peaks: dict[str, float] = {}
    """The stored calibration of this machine, as `Calibrated` gave it; empty: no roofline."""
    beside: "dict[str, Microseconds]" = {}
    """Times of the baseline variants in this setting, by name. The result returns them."""
    versus: "Rival | None" = None
    """Judge against this kernel instead of the baseline. Both are checked, and the rounds time the two in turn.
    In the events of such a run `baseline_us` is the rival's time, and a speedup is over the rival."""

    @property
    def kernel(self) -> Kernel:
        """All its files."""
        return Kernel(self.source, self.files)


class Rival(msgspec.Struct, frozen=True):
    """The other kernel of a run between two contenders; the word `baseline` as for `Run`."""

    kernel_name: str
    source: str
    files: Files = {}

    @property
    def kernel(self) -> Kernel:
        """All its files."""
        return Kernel(self.source, self.files)


class Calibrate(Command, tag="calibrate", frozen=True):
    """Measure the peaks of this machine for the ranks of the setting. Ends with `Calibrated` or `Fatal`."""

    setting: Setting


class Cancel(Command, tag="cancel", frozen=True):
    """End the run in progress; it finishes with `Cancelled`."""

    run_id: str


class Shutdown(Command, tag="shutdown", frozen=True):
    """Kill all worlds and exit. Closing the pipe means the same."""


AnyCommand = Warm | Run | Calibrate | Cancel | Shutdown


# --- events: referee -> engine ---------------------------------------------------------------------------


class Event(msgspec.Struct, tag_field="type", frozen=True, kw_only=True):
    """Base of all events. `at` is seconds on the referee's monotonic clock."""

    at: float = 0.0


class Ready(Event, tag="ready", frozen=True, kw_only=True):
    """The referee is up."""

    pid: int
    jail: str
    version: int = VERSION


class WorldChanged(Event, tag="world", frozen=True, kw_only=True):
    """A world is starting, ready or gone. Roles: "baseline" (oracle world), "reference", "spare", "contender", "rival"."""

    role: str
    state: str
    """ "starting", "ready" or "gone"."""
    world: int
    seconds: float = 0.0


class RunStarted(Event, tag="run_started", frozen=True, kw_only=True):
    """First event of a run."""

    run_id: str
    setting: Setting
    kernel_name: str
    sha256: str


class LeaseHolder(msgspec.Struct, frozen=True):
    """The run or profile that has the devices. Written by another process, perhaps another user's: show it, never trust it."""

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


class Waiting(Event, tag="waiting", frozen=True, kw_only=True):
    """The run waits because another run or profile has its devices; sent again when that changes. Ends with `PhaseStarted`."""

    run_id: str
    holder: LeaseHolder | None = None
    """None: not known."""

    @property
    def words(self) -> str:
        """ "gemm_allreduce of ada, process 4711, since 14:02:11", or that it is not known."""
        return self.holder.words if self.holder is not None else "no details known"


class PhaseStarted(Event, tag="phase_started", frozen=True, kw_only=True):
    """A phase began. `limit_s` is its deadline."""

    run_id: str
    phase: str
    limit_s: float


class PhaseEnded(Event, tag="phase_ended", frozen=True, kw_only=True):
    """A phase ended without a failure."""

    run_id: str
    phase: str
    seconds: float


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


class RankChecked(Event, tag="rank_checked", frozen=True, kw_only=True):
    """One rank's outputs were compared (worst iteration so far)."""

    run_id: str
    rank: int
    ok: bool
    outputs: list[OutputError]


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


class Checked(Event, tag="checked", frozen=True, kw_only=True):
    """The correctness verdict, before timing."""

    run_id: str
    verdict: Verdict
    seconds: float
    """Since RunStarted."""
    failure: Failure | None = None
    paper_rule: str = ""
    """ "match" or "mismatch" under upstream's rule (atol = rtol = 1e-2)."""


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its 99 % interval (sandbox/timing/interval.py)."""

    median: float
    low: float
    high: float


class Timed(Event, tag="timed", frozen=True, kw_only=True):
    """A round is done: both sides ran the same iterations."""

    run_id: str
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


class Log(Event, tag="log", frozen=True, kw_only=True):
    """Text that a rank printed. It is untrusted and may have control characters."""

    run_id: str
    rank: int
    """-1: the referee itself."""
    stream: str
    text: str


class Speedup(msgspec.Struct, frozen=True):
    """Baseline time over contender time, by clock."""

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


class Result(msgspec.Struct, frozen=True):
    """The result of a run. The command line adds names and prints it as JSON."""

    verdict: Verdict
    detail: str
    failure: Failure | None
    paper_rule: str | None
    error: Errors | None
    speedup: Speedup | None
    baseline_us: Microseconds | None
    contender_us: Microseconds | None
    roofline: Roofline | None
    seconds: Seconds
    jail: str
    sealed: bool
    outcome: str = ""
    """ "faster", "slower", "even" or "too noisy", by the clock of the headline; empty if nothing was timed."""
    clock: str = ""
    """The clock of the headline: "call", or "device" if end-to-end time is too noisy; empty if nothing was timed."""
    told: str = ""
    """The conclusion from both clocks, in one sentence."""
    advice: str = ""
    """What would make the measurement more precise; empty if that is not needed."""
    rounds: int = 0
    rival: "RivalResult | None" = None
    """Set for a run between two contenders. There is no speedup if either failed."""
    labels: list[str] = []
    """Hints about the source of a passing kernel's speed (sandbox/referee/labels.py)."""
    samples: Samples = Samples()
    beside: dict[str, Microseconds] = {}
    """Times of the baseline variants in this setting, by name, measured before."""


class RivalResult(msgspec.Struct, frozen=True):
    """The result of the other kernel of a run between two contenders. Fields as in `Result`."""

    verdict: Verdict
    detail: str
    failure: Failure | None
    sha256: str


class Finished(Event, tag="finished", frozen=True, kw_only=True):
    """Last event of a run that was judged."""

    run_id: str
    sha256: str
    result: Result


class Cancelled(Event, tag="cancelled", frozen=True, kw_only=True):
    """Last event of a run that was cancelled."""

    run_id: str
    phase: str


class Refused(Event, tag="refused", frozen=True, kw_only=True):
    """The setting is invalid (sizes, world or dtype), so nothing was judged."""

    run_id: str
    message: str
    advice: str


class Calibrated(Event, tag="calibrated", frozen=True, kw_only=True):
    """Peaks of the slowest rank while all ranks are busy. Keys and units: sandbox.rank.calibration."""

    world: int
    device: str
    peaks: dict[str, float]
    seconds: float


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
    | Finished
    | Cancelled
    | Refused
    | Calibrated
    | Fatal
)

encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(AnyEvent).decode
decode_command = msgspec.json.Decoder(AnyCommand).decode
