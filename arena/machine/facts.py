"""Facts about this machine and its software, found without importing torch; the fingerprint in every result."""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import msgspec

from arena.errors import ArenaError, MachineError
from arena.settings import Settings
from sandbox.machine import nvml
from sandbox.machine.devices import kind_of

NO_JAIL = ("", "none")


def is_jail(jail_name: str) -> bool:
    """Returns whether a profile name, from a referee's Ready or a Result, means a jail."""
    return jail_name not in NO_JAIL


def require_jail(jail_name: str, unsafe: bool) -> None:
    """Checks that model-written code may run: there is a jail, or the user accepts the risk.

    jail_name: the profile of the referee that would judge it; unsafe: the user passed --unsafe.

    Raises:
        MachineError: there is no jail and `unsafe` is false (exit code 3).
    """
    if is_jail(jail_name) or unsafe:
        return
    raise MachineError(
        "a model's kernel would run without a jail: it could read your files, use the network and stop your processes",
        "install bubblewrap (`pkb-arena doctor` shows what is missing), or use a command with --unsafe: no isolation",
    )


def isolation_words(jail: str) -> str:
    """Describes a jail profile as "isolated", "partly isolated" or "not isolated"."""
    return {"full": "isolated", "none": "not isolated"}.get(jail, "partly isolated")


def device_files() -> int:
    """Number of GPUs that have device files; 0 without a driver. Takes microseconds."""
    return sum(1 for path in Path("/dev").glob("nvidia[0-9]*"))


def visible_gpus() -> int:
    """Counts the GPUs that a kernel can use, with CUDA_VISIBLE_DEVICES applied.

    The count comes from the driver, or from the device files without NVML. Takes microseconds. The first call on a
    machine with GPUs takes tens of milliseconds, or as long as the driver needs to start up.
    """
    devices = device_files()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if devices and (gpus := _all_gpus()) is not None:
        return len(nvml.visible(gpus, allowed))
    if allowed is None:
        return devices
    named = [name for name in allowed.split(",") if name.strip() not in {"", "-1"}]
    return min(devices, len(named))


def gpu_details() -> list[nvml.Gpu]:
    """Returns the GPUs that a kernel can use, in CUDA's order; empty without NVML. As fast as `visible_gpus`."""
    gpus = _all_gpus() if device_files() else None
    return nvml.visible(gpus or (), os.environ.get("CUDA_VISIBLE_DEVICES"))


@functools.cache
def _all_gpus() -> tuple[nvml.Gpu, ...] | None:
    """Returns all GPUs, or None without NVML.

    Cached: screens call this ten times a second, and no GPU is added while this process runs.
    """
    try:
        return tuple(nvml.gpus())
    except nvml.NvmlMissing:
        return None


def installed_version(package: str) -> str | None:
    """Returns a package's version without importing it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def torch_fault() -> str:
    """Why the installed torch cannot be imported, in one line; empty if it can. Takes 1 to 2 s."""
    said = "f'{type(error).__name__}: ' + ' '.join(str(error).split())"  # torch's own errors have many lines
    program = f"try: import torch.distributed\nexcept BaseException as error: raise SystemExit({said})"
    command = [sys.executable, "-P", "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return lines[-1] if done.returncode else ""


def torch_is_cpu_only() -> bool:
    """Returns whether the installed torch is a build without CUDA; also true without torch."""
    return "+cpu" in (installed_version("torch") or "+cpu")


def choose_device(asked: str) -> str:
    """Returns the device kind to use. asked: "auto", or the name of a device kind.

    Raises:
        MachineError: GPUs were requested but cannot be used.
    """
    if asked != "auto" and not kind_of(asked).on_gpus:
        return asked
    gpus = visible_gpus()
    if asked == "auto":
        return "cuda" if gpus and not torch_is_cpu_only() else "cpu"
    if not gpus:
        hidden = " (CUDA_VISIBLE_DEVICES hides them all)" if device_files() else ""
        raise MachineError(
            f"no GPU is visible{hidden}", "use --device cpu; `pkb-arena doctor` shows what was looked for"
        )
    if torch_is_cpu_only():
        raise MachineError(
            f"torch {installed_version('torch') or '(missing)'} cannot use this machine's {gpus} GPUs",
            "install torch with CUDA, or use --device cpu",
        )
    return asked


def machine_words(settings: Settings) -> str:
    """Describes in a few words where kernels will run."""
    try:
        device = choose_device(settings.device)
    except ArenaError as error:
        return f"! {error}"
    kind = kind_of(device)
    if kind.on_gpus:
        return f"{visible_gpus()} {kind.ranks_name} · {kind.backend}"
    return f"{kind.ranks_name} over {kind.backend} · {os.cpu_count()} cores"


_NVCC_S = 10.0
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def torch_cuda() -> tuple[int, int] | None:
    """Returns the CUDA version (major, minor) that torch was built for; None without torch or CUDA."""
    try:
        torch = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None
    try:
        text = Path(str(torch.locate_file("torch/version.py"))).read_text()
    except OSError:
        return None
    found = re.search(r"""^cuda\b.*=\s*['"](\d+)\.(\d+)""", text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def cuda_major(package: str) -> int | None:
    """Returns the CUDA major version in a package's name: 13 for "cupy-cuda13x" and "nvidia-nccl-cu13"."""
    found = re.search(r"-cu(?:da)?(\d{2})x?$", package)
    return int(found[1]) if found else None


def nvcc() -> tuple[str, tuple[int, int] | None] | None:
    """Returns path and version of the CUDA compiler that torch would use; None without one. Takes 0.1 s.

    The version is None if nvcc does not print one.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    path = f"{home}/bin/nvcc" if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return (path, _version(path)) if os.access(path, os.X_OK) else None


def _version(nvcc: str) -> tuple[int, int] | None:
    try:
        done = subprocess.run(
            [nvcc, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_NVCC_S, check=True
        )
    except (subprocess.SubprocessError, OSError, UnicodeDecodeError):
        return None
    found = re.search(r"release (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


class Machine(msgspec.Struct, frozen=True):
    """A machine as recorded in results, without host name: equal hardware and software is the same machine."""

    devices: str
    """ "4 × NVIDIA H200", or the processor's name and number of cores."""
    driver: str
    """Version of the GPU driver; empty for CPU ranks."""
    torch: str
    collectives: str
    """ "NCCL 2.27.5", or "gloo" (part of torch)."""

    @property
    def digest(self) -> str:
        """A hash of all fields, 12 characters."""
        return hashlib.sha256("\n".join(msgspec.structs.astuple(self)).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return " · ".join(filter(None, (self.devices, self.driver and f"driver {self.driver}", self.software)))

    @property
    def software(self) -> str:
        """ "torch 2.9.1, NCCL 2.27.5"."""
        return f"torch {self.torch}, {self.collectives}"


@functools.cache
def this_machine(device: str) -> Machine:
    """Describes this machine for ranks on one kind of device ("cpu" or "cuda"). Does not import torch."""
    torch = installed_version("torch") or "(missing)"
    if not kind_of(device).on_gpus:
        cores = len(os.sched_getaffinity(0))
        return Machine(f"{processor()}, {cores} cores", "", torch, "gloo")
    names = [gpu.name for gpu in gpu_details()]
    kinds = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    # The version of an NCCL that is built into torch cannot be read without torch.
    nccl = next((version for name in NCCL if (version := installed_version(name))), "of torch")
    return Machine(", ".join(kinds) or "GPUs without NVML", _driver(), torch, f"NCCL {nccl}")


def processor() -> str:
    """Returns the processor's name, else the kind of machine."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return os.uname().machine


def _driver() -> str:
    try:
        version = nvml.call("nvmlSystemGetDriverVersion")
    except nvml.NvmlMissing:
        return "unknown"
    return version.decode() if isinstance(version, bytes) else str(version)
