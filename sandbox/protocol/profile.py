"""Profiles of a kernel: plans of their worlds, the driver's counters, reports of its ranks, and of Nsight Compute (ncu).

The kernel can change the reports. They are parsed strictly and never judged. A rank on a GPU also has a control socket: SAID is
a message of the rank before and after calls in a row, TOLD is the referee's answer.
"""

import struct

import msgspec

from sandbox.machine.gpu_counters import GpuCounted
from sandbox.protocol.events import Setting

SAID, TOLD = struct.Struct("<d"), struct.Struct("<Q")
"""From a rank: its seconds per call, then any number at the end of the row. To it: the number of calls, then any number."""

MOST_SPANS = 12_000
"""Spans in one report."""
MOST_BYTES = 2 << 20
"""Size of one report."""
NAME_CHARACTERS = 80
WORK = frozenset({"kernel", "copy", "wait"})
"""Kinds of spans on a GPU."""


class ProfilePlan(msgspec.Struct, frozen=True):
    """The command line of a profiled world."""

    setting: Setting
    source: str
    """Empty: the baseline."""
    kernel_name: str
    kernel_folder: str
    """As `LoadKernel.folder`."""
    device_module: str
    folder: str
    """The world's folder, as its processes see it."""
    cores: list[list[int]]
    reports: list[int]
    """Descriptors for the reports, by rank."""
    controls: list[int]
    """Descriptors of the control sockets, by rank; empty for CPU ranks."""
    epoch_ns: int
    """Origin of span times on the machine's clock."""
    seed: int
    warm: int
    """Untimed calls before the recorded ones."""
    calls: int


class Span(msgspec.Struct, frozen=True, array_like=True):
    """An interval on one rank."""

    kind: str
    """ "call": one call of solution, on a GPU until all of its work is done. "op": an operation of torch on the host.
    "wait": in a collective or a barrier. "kernel", "copy": work of the GPU. "stamp": between two stamps of a block
    (px_stamp).
    On the host of a GPU: "host": from the start of a call until it returns; "launch": queues work; "sync": waits for
    the GPU.
    """
    name: str
    start_us: float
    """Since the plan's epoch, on this machine's clock. CUPTI converts the times of a GPU."""
    us: float
    stream: int = 0
    """The stream of a GPU's work; the block of a stamp."""


class RankProfile(msgspec.Struct, frozen=True):
    """One rank's report."""

    rank: int
    spans: list[Span] = []
    failed: str = ""
    """The error of the kernel; empty if there is none."""
    failed_at: float = 0.0
    """Time of the error on this machine's monotonic clock, in seconds."""
    plain_us: float = 0.0
    """Median time of a call before the profiler began, in microseconds; 0 if it was not measured."""
    left_out: int = 0
    """Spans beyond MOST_SPANS. Their call is left out as a whole, unless it is the first."""
    unseen: str = ""
    """Why the GPU's work was not recorded; empty if it was, and for CPU ranks."""
    stamp_us: float = 0.0
    """Error of stamps against the host's clock; 0 without stamps."""
    clock_us: float = 0.0
    """Lower bound of the error of the GPU's timestamps, from work that seems to begin before its launch."""


class Outside(msgspec.Struct, frozen=True):
    """Calls in a row on GPUs, measured from outside. The number of calls is as the ranks report it."""

    calls: int
    seconds: float
    """From the first order to the end of the last rank."""
    gpus: list[GpuCounted] = []
    """By rank; empty if NVML is not available."""
    missing: list[str] = []
    """What is not known, with reasons; one line each."""


class WorldProfile(msgspec.Struct, frozen=True):
    """The profile of all ranks."""

    reports: list[RankProfile]
    """By rank."""
    outside: Outside | None = None
    """None for CPU ranks, and if the row of calls did not end."""


MOST_TEXT = 4 << 20
"""Bytes of an answer."""
MOST_FILE = 128 << 20
"""Bytes of a report file."""
KERNEL, APPLICATION = "kernel", "application"
"""Ways to repeat a launch: ncu repeats it within the process, or starts the whole world again for every pass."""


class Replay(msgspec.Struct, frozen=True):
    """One way to repeat launches, which is tried."""

    mode: str
    limit_s: float
    launches: int
    """Most launches of the call that are profiled, from the first."""
    wait_ms: int
    """Milliseconds after which a wait in a kernel traps."""
    sections: list[str]


class NcuPlan(msgspec.Struct, frozen=True):
    """The command line of the world."""

    world: ProfilePlan
    """The plan of the world, without reports and controls."""
    ncu: str
    """The program ncu."""
    answer: int
    """Descriptor for the answer."""
    file: int
    """Descriptor for the report file."""
    replays: list[Replay]
    """The ways to try. The next one is tried if the one before gave no report."""


class NcuAnswer(msgspec.Struct, frozen=True):
    """The outcome. The kernel can change it."""

    mode: str = ""
    """The mode of the replay that gave the report; empty if none did."""
    seconds: float = 0.0
    """The duration of that replay."""
    csv: str = ""
    """The report as ncu writes it with `--page details --csv`."""
    refused: dict[str, str] = {}
    """Why the ways before it gave no report, by mode; one line each."""


encode = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(ProfilePlan).decode
decode_report = msgspec.json.Decoder(RankProfile).decode
decode_ncu_plan = msgspec.json.Decoder(NcuPlan).decode
decode_answer = msgspec.json.Decoder(NcuAnswer).decode
