"""What this machine has, found without importing torch."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from arena.errors import MachineError

_QUERY_S = 10.0


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi describes it."""

    index: int
    name: str
    memory_mib: int


def visible_gpus() -> int:
    """How many GPUs a kernel could use: device files, narrowed by CUDA_VISIBLE_DEVICES. Microseconds."""
    devices = sum(1 for path in Path("/dev").glob("nvidia[0-9]*"))
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return devices
    named = [name for name in allowed.split(",") if name.strip() not in {"", "-1"}]
    return min(devices, len(named))


def gpu_details() -> list[Gpu]:
    """The GPUs by name, from nvidia-smi; empty where it is missing or does not answer. Up to seconds."""
    if shutil.which("nvidia-smi") is None:
        return []
    import subprocess

    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_QUERY_S,
            check=True,
        )
    except (subprocess.SubprocessError, OSError):
        return []
    gpus = []
    for line in done.stdout.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0].isdigit() and parts[2].isdigit():
            gpus.append(Gpu(int(parts[0]), parts[1], int(parts[2])))
    return gpus


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
    """ "cpu" or "cuda" for what was asked ("auto", "cpu", "cuda").

    Raises:
        MachineError: cuda was asked for and cannot be had.
    """
    if asked == "cpu":
        return "cpu"
    gpus = visible_gpus()
    if asked == "auto":
        return "cuda" if gpus and not torch_is_cpu_only() else "cpu"
    if not gpus:
        hidden = " (CUDA_VISIBLE_DEVICES hides them all)" if list(Path("/dev").glob("nvidia[0-9]*")) else ""
        raise MachineError(
            f"no GPU is visible{hidden}", "use --device cpu; `pkb-arena doctor` shows what was looked for"
        )
    if torch_is_cpu_only():
        raise MachineError(
            f"torch {installed_version('torch') or '(missing)'} cannot use this machine's {gpus} GPUs",
            "install torch with CUDA, or use --device cpu",
        )
    return "cuda"
