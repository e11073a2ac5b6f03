"""The request for a profile, and the messages of the process that makes it: one JSON object per line."""

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
    """The user's own problem folders."""
    peaks: dict[str, float] = {}
    """From this machine's calibration; empty if there is none."""
    ncu_file: str = ""
    """Path for Nsight Compute's report of rank 0; empty: uses torch's profiler and the driver's counters."""


class Waits(msgspec.Struct, frozen=True, tag="waits"):
    """A kernel is being timed on the same devices; the profile begins after it."""


class Begins(msgspec.Struct, frozen=True, tag="begins"):
    """The devices are leased, and a world starts."""


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """The end: every rank has reported."""

    reports: list[RankProfile]
    figures: list[RankFigures]
    """By rank, for CPU ranks; not valid if a rank failed."""
    gpu_figures: list[GpuFigures] = []
    """By rank, for ranks on GPUs."""
    outside: Outside | None = None
    """The driver's counters; None for CPU ranks and if the row of calls did not end."""


class NcuProfiled(msgspec.Struct, frozen=True, tag="ncu_profiled"):
    """The end: Nsight Compute has profiled rank 0."""

    kernels: list[NcuKernel]
    mode: str
    """ncu's replay mode: "kernel" or "application"."""
    seconds: float
    refused: dict[str, str]
    """By mode tried before: why it gave no report."""
    file: str


class NotProfiled(msgspec.Struct, frozen=True, tag="not_profiled"):
    """The end: there is no report."""

    message: str
    advice: str


Message = Waits | Begins | Profiled | NcuProfiled | NotProfiled

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode
