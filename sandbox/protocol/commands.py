"""Commands from the engine to the referee: one JSON object per line, tagged by `type`."""

import msgspec

from sandbox.protocol.kernel_files import Files, Kernel
from sandbox.protocol.result import Microseconds


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
        """All its files."""
        return Kernel(self.source, self.files)

    @property
    def is_baseline(self) -> bool:
        """Whether it stands for the problem's baseline."""
        return self.kernel_name == "baseline" and not self.source


class Rival(Contender, frozen=True):
    """The other kernel of a run between two contenders."""


class Command(msgspec.Struct, tag_field="type", frozen=True):
    """Base of the commands without a kernel."""


class Warm(Command, tag="warm", frozen=True):
    """Prepare the oracle world and a spare contender world for a setting, before the first run."""

    setting: Setting


class Run(Contender, tag_field="type", tag="run", frozen=True, kw_only=True):
    """Judge one revision of a kernel. A run in progress must be cancelled first."""

    run_id: str
    setting: Setting
    rounds: int | None = None
    """Number of timing rounds; None: adaptive within the budget; 0: correctness only."""
    budget_s: float = 1.0
    """Time budget of the timing phase if rounds is None."""
    peaks: dict[str, float] = {}
    """The stored calibration of this machine, as `Calibrated` gave it; empty: no roofline."""
    beside: dict[str, Microseconds] = {}
    """Times of the baseline variants in this setting, by name. The result returns them."""
    energy: bool = False
    """Whether to measure energy per call, too, after a kernel that passed was timed."""
    versus: Rival | None = None
    """Judge against this kernel instead of the baseline. Both are checked, and the rounds time the two in turn.
    In the events of such a run `baseline_us` is the rival's time, and a speedup is over the rival."""


class Calibrate(Command, tag="calibrate", frozen=True):
    """Measure the peaks of this machine for the ranks of the setting. Ends with `Calibrated` or `Fatal`."""

    setting: Setting


class TimeTransfers(Command, tag="time_transfers", frozen=True):
    """Time transfers between the ranks of the setting. Ends with `TransfersTimed` or `Fatal`."""

    setting: Setting


class Cancel(Command, tag="cancel", frozen=True):
    """End the run in progress; it finishes with `Cancelled`."""

    run_id: str


class Shutdown(Command, tag="shutdown", frozen=True):
    """Kill all worlds and exit. Closing the pipe means the same."""


AnyCommand = Warm | Run | Calibrate | TimeTransfers | Cancel | Shutdown

decode_command = msgspec.json.Decoder(AnyCommand).decode
