"""The installed software for GPU kernels and its CUDA versions, read from package metadata without importing it."""

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

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


def dotted(version: tuple[int, int]) -> str:
    """ "13.0" for (13, 0)."""
    return f"{version[0]}.{version[1]}"


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
