"""The results of profiling a kernel: what the driver counted from outside, and what its ranks report, which it could change.

A report of a rank is parsed strictly, and judged by nobody. Between the referee's side and a rank on a GPU there is a socket,
too: SAID is what the rank says before and after calls in a row, TOLD what it is told to do.
"""

import struct

import msgspec

from sandbox.machine.gpu_counters import GpuCounted
from sandbox.protocol.events import Setting

SAID, TOLD = struct.Struct("<d"), struct.Struct("<Q")
"""Of a rank: seconds a call at first, then anything at the end of the row. To it: how many calls; then anything, to go on."""

MOST_SPANS = 12_000
"""Of one rank."""
MOST_BYTES = 2 << 20
"""Of one rank's report."""
NAME_CHARACTERS = 80
WORK = frozenset({"kernel", "copy", "wait"})
"""Kinds of a GPU's work."""


class ProfilePlan(msgspec.Struct, frozen=True):
    """The command line of a profiled world."""

    setting: Setting
    source: str
    """Empty: the baseline."""
    kernel_name: str
    device_module: str
    folder: str
    """The world's own, as seen from inside."""
    cores: list[list[int]]
    reports: list[int]
    """Descriptors that the ranks write their reports to."""
    controls: list[int]
    """Descriptors of the sockets of ranks on GPUs; empty for others."""
    epoch_ns: int
    """On the machine's clock, the same for all ranks: what spans are counted from."""
    seed: int
    warm: int
    """Calls before those that are looked at."""
    calls: int


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Something that took time on one rank."""

    kind: str
    """ "call": one call of solution; "wait": in a collective or a barrier; "op": an operation of torch on the host.

    On a GPU a call ends when all of its work has. "kernel", "copy" and "wait" are the GPU's own work; on the host there are
    "host": from the begin of a call until it returns; "launch": something is queued; "sync": the host waits for the GPU.
    "stamp": between two stamps of a block (px_stamp).
    """
    name: str
    start_us: float
    """Since the plan's epoch, on this machine's clock, the same for all ranks; of a GPU's work as CUPTI converts it."""
    us: float
    stream: int = 0
    """Of a GPU's work; of a stamp its block."""


class RankProfile(msgspec.Struct, frozen=True):
    """One rank's report."""

    rank: int
    spans: list[Span] = []
    failed: str = ""
    """What went wrong, in the kernel's own words; empty when nothing did."""
    failed_at: float = 0.0
    """Seconds on this machine's monotonic clock, the same for all ranks."""
    left_out: int = 0
    """Spans beyond MOST_SPANS; the call that they belong to is left out as a whole, unless it is the first."""
    unseen: str = ""
    """Why the work of this rank's GPU was not seen; empty where it was, and for ranks without one."""
    stamp_us: float = 0.0
    """By how much stamps may be off the host's clock; 0 without stamps."""
    clock_us: float = 0.0
    """What the GPU's timestamps are off by at the least: its work seems to begin before its launch, or to outlast a wait."""


class Outside(msgspec.Struct, frozen=True):
    """Calls in a row on GPUs, one right after the other, seen from outside. That so many were made is the ranks' word."""

    calls: int
    seconds: float
    """From the first rank's order to the last rank's end."""
    gpus: list[GpuCounted] = []
    """By rank; empty where the driver cannot be asked."""
    missing: list[str] = []
    """What is not known, and why: a line each."""


class WorldProfile(msgspec.Struct, frozen=True):
    """All that is known."""

    reports: list[RankProfile]
    """By rank."""
    outside: Outside | None = None
    """None on ranks without GPUs, and where the row of calls did not come to its end."""


encode = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(ProfilePlan).decode
decode_report = msgspec.json.Decoder(RankProfile).decode
