"""Commands and events between the engine and the referee.

The same stream of events drives the screens, is written to a run's journal, and is what a replay reads back.
Commands go to the referee, events come from it: one JSON object a line, tagged by `type`.
Units: seconds for `seconds` and `at`, microseconds for fields that end in `_us`.
"""

import time

import msgspec

from sandbox.protocol.samples import Samples
from sandbox.protocol.verdict import Verdict

VERSION = 1

PHASES = ("prepare", "load", "compile", "check", "time")
"""The phases of a run, in order. `prepare` is the baseline's side (first run of a problem, or a new size)."""


# --- commands: engine -> referee -------------------------------------------------------------------------


class Command(msgspec.Struct, tag_field="type", frozen=True):
    """Base of all commands."""


class Setting(msgspec.Struct, frozen=True):
    """Everything that fixes a measurement besides the kernel."""

    problem_dir: str
    preset: str
    sizes: dict[str, int]
    """Every size parameter of the problem, overrides applied."""
    world: int
    device: str
    """One of sandbox.machine.devices.KINDS."""
    dtype: str
    """torch's name: "bfloat16", "float32"..."""


class Warm(Command, tag="warm", frozen=True):
    """Prepare the baseline world for a setting, and a spare contender world, before the first run asks."""

    setting: Setting


class Run(Command, tag="run", frozen=True):
    """Judge one revision of a kernel. A run in progress must be cancelled first."""

    run_id: str
    setting: Setting
    kernel_name: str
    """Name shown in tracebacks, e.g. "kernel.py"."""
    source: str
    """The kernel's text; the word `baseline` as kernel_name with an empty source runs the baseline against itself."""
    rounds: int | None = None
    """Exactly this many timing rounds; None = adaptive within the budget; 0 = correctness only."""
    budget_s: float = 1.0
    """Time budget of the timing phase when rounds is None."""
    peaks: dict[str, float] = {}
    """The stored calibration of this machine, as `Calibrated` gave it; empty: no roofline."""
    beside: "dict[str, Microseconds]" = {}
    """What the yardsticks took in this setting, by name: handed back with the result, to be shown beside the baseline."""
    versus: "Rival | None" = None
    """Judge against this kernel instead of the baseline: both must be right, and the rounds time the two in turn.
    In the events of such a run `baseline_us` is the rival's time and a speedup is how much faster the kernel is than it."""


class Rival(msgspec.Struct, frozen=True):
    """The other kernel of a run between two contenders; the word `baseline` as for `Run`."""

    kernel_name: str
    source: str


class Calibrate(Command, tag="calibrate", frozen=True):
    """Measure what this machine's ranks can do at the most; ends with `Calibrated` or `Fatal`. The setting names the ranks."""

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
    """A world was started, became ready, or is gone. Role: "baseline", "contender", "rival" or "spare"."""

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
    """A phase ended well."""

    run_id: str
    phase: str
    seconds: float


class OutputError(msgspec.Struct, frozen=True):
    """How far one output of one rank is from the float64 oracle, with the limits it is held to.

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
    """Index of the first wrong element; where some are not finite that should be, or the reverse, of the first such."""
    expected: str = ""
    got: str = ""
    where: list[float] = []
    """Share of wrong elements in up to 32 equal parts of the flattened output: the map a screen draws."""


class RankChecked(Event, tag="rank_checked", frozen=True, kw_only=True):
    """One rank's outputs were compared (worst iteration so far)."""

    run_id: str
    rank: int
    ok: bool
    outputs: list[OutputError]


class Failure(msgspec.Struct, frozen=True):
    """Why a kernel failed. Text fields are data from an untrusted process: show them, never parse them."""

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
    """The correctness verdict: known before anything is timed."""

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
    """One more round: both worlds ran the same iterations."""

    run_id: str
    round: int
    rounds: int
    """Expected in all; may shrink."""
    calls: int
    baseline_us: float
    """Per call in this round, maximum over ranks, referee's clock."""
    contender_us: float
    call: Interval
    """Speedup so far."""
    device: Interval | None = None


class Log(Event, tag="log", frozen=True, kw_only=True):
    """Text that a rank printed. Untrusted, control characters still inside."""

    run_id: str
    rank: int
    """-1: the referee's own words."""
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
    """The machine's bound for this problem and how much of it the kernel reaches."""

    bound_us: float
    percent: float
    limiter: str


class Seconds(msgspec.Struct, frozen=True):
    """Where the time of a run went."""

    load: float = 0.0
    compile: float = 0.0
    check: float = 0.0
    time: float = 0.0
    total: float = 0.0


class Result(msgspec.Struct, frozen=True):
    """What the referee found. The command line adds names and prints it as JSON."""

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
    """ "faster", "slower", "even" or "too noisy", by the clock of the headline; empty when nothing was timed."""
    clock: str = ""
    """The clock of the headline: "call", or "device" where calls are too noisy to tell; empty when nothing was timed."""
    told: str = ""
    """What both clocks say, in a sentence with its numbers."""
    advice: str = ""
    """What would let the clocks tell more; empty when they tell enough."""
    rounds: int = 0
    rival: "RivalResult | None" = None
    """Only of a run between two contenders. When either failed there is no speedup."""
    labels: list[str] = []
    """Hints from the text of a kernel that passed at the source of its speed (sandbox/referee/labels.py)."""
    samples: Samples = Samples()
    beside: dict[str, Microseconds] = {}
    """Yardsticks measured before in this setting: the baseline with all that launching costs removed, and so on."""


class RivalResult(msgspec.Struct, frozen=True):
    """How the other kernel of a run between two contenders did; the fields are those of `Result`."""

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
    """The setting itself cannot be run (a usage error: sizes, world, dtype), so nothing was judged."""

    run_id: str
    message: str
    advice: str


class Calibrated(Event, tag="calibrated", frozen=True, kw_only=True):
    """Peaks of one rank with all ranks busy: the slowest rank's. See sandbox.rank.calibration for the keys and units."""

    world: int
    device: str
    peaks: dict[str, float]
    seconds: float


class Fatal(Event, tag="fatal", frozen=True, kw_only=True):
    """The referee or the baseline world failed (HARNESS_ERROR outside a run)."""

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
