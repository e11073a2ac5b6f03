"""The request for a profile, and the messages of the process that makes it: one JSON object a line."""

import msgspec

from arena.profile.gpu_figures import GpuFigures
from arena.profile.ncu_report import NcuKernel
from arena.profile.rules import RankFigures
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Files
from sandbox.protocol.profile import Outside, RankProfile


class ProfileRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel to profile in one setting."""

    setting: Setting
    kernel_name: str
    """Shown in tracebacks."""
    source: str
    """Empty: the baseline."""
    files: Files = {}
    """The other files of a kernel of several files."""
    readable: list[str] = []
    """Problem folders of the user's own."""
    peaks: dict[str, float] = {}
    """Of this machine's calibration; empty where there is none."""
    ncu_file: str = ""
    """Nsight Compute profiles rank 0 and its report goes here; empty: torch's profiler and the driver's counters instead."""


class Waits(msgspec.Struct, frozen=True, tag="waits"):
    """A kernel is being timed on the same devices; the profile begins after it."""


class Begins(msgspec.Struct, frozen=True, tag="begins"):
    """The devices are leased, and a world starts."""


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """The end: every rank has reported."""

    reports: list[RankProfile]
    figures: list[RankFigures]
    """By rank, of CPU ranks; of no use where a rank failed."""
    gpu_figures: list[GpuFigures] = []
    """By rank, of ranks on GPUs."""
    outside: Outside | None = None
    """Of GPUs, where it was counted."""


class NcuProfiled(msgspec.Struct, frozen=True, tag="ncu_profiled"):
    """The end: Nsight Compute has profiled rank 0."""

    kernels: list[NcuKernel]
    mode: str
    """How passes were repeated: "kernel" or "application"."""
    seconds: float
    refused: dict[str, str]
    """Why the ways before it gave no report, by mode."""
    file: str


class NotProfiled(msgspec.Struct, frozen=True, tag="not_profiled"):
    """The end: there is no report."""

    message: str
    advice: str


Message = Waits | Begins | Profiled | NcuProfiled | NotProfiled

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode
