"""Facts about this machine, found without importing torch."""

import functools
import os
from pathlib import Path

from arena.errors import ArenaError, MachineError
from arena.settings import Settings
from sandbox.machine import nvml
from sandbox.machine.devices import kind_of


def device_files() -> int:
    """Number of GPUs that have device files; 0 without a driver. Takes microseconds."""
    return sum(1 for path in Path("/dev").glob("nvidia[0-9]*"))


def visible_gpus() -> int:
    """Number of GPUs that a kernel can use: the driver's, narrowed by CUDA_VISIBLE_DEVICES; the device files' without NVML.

    Microseconds; the first call on a machine with GPUs takes tens of milliseconds, or what its driver needs to wake up.
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
    """The GPUs that a kernel could use, in CUDA's order; empty without NVML. As quick as `visible_gpus`."""
    gpus = _all_gpus() if device_files() else None
    return nvml.visible(gpus or (), os.environ.get("CUDA_VISIBLE_DEVICES"))


@functools.cache
def _all_gpus() -> tuple[nvml.Gpu, ...] | None:
    """None without NVML. Asked once: screens want to know ten times a second, and no GPU comes while this process runs."""
    try:
        return tuple(nvml.gpus())
    except nvml.NvmlMissing:
        return None


def installed_version(package: str) -> str | None:
    """A package's version without importing it, or None."""
    from importlib import metadata  # 40 ms that `list` does not need

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def torch_is_cpu_only() -> bool:
    """The installed torch is a build without CUDA."""
    return "+cpu" in (installed_version("torch") or "+cpu")


def choose_device(asked: str) -> str:
    """The name of a kind of device for what was asked: "auto", or such a name.

    Raises:
        MachineError: GPUs were asked for and cannot be had.
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
    """Where kernels will run, in a few words."""
    try:
        device = choose_device(settings.device)
    except ArenaError as error:
        return f"! {error}"
    kind = kind_of(device)
    if kind.on_gpus:
        return f"{visible_gpus()} {kind.ranks_name} · {kind.backend}"
    return f"{kind.ranks_name} over {kind.backend} · {os.cpu_count()} cores"
