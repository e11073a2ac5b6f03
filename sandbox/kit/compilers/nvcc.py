"""CUDA C++ to a cubin through nvcc, for headers that NVRTC cannot compile. Slower: one or two seconds."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandbox.kit.compilers.build import TIMEOUT_S
from sandbox.kit.compilers.gcc import INCLUDE, first_error
from sandbox.kit.errors import CompileError

_OPTIONS = ("-cubin", "-std=c++17", "--expt-relaxed-constexpr", "-diag-suppress=177")


def find() -> str:
    """The path of nvcc: from CUDA_HOME, PATH, or the usual place of a toolkit. Raises CompileError if there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    path = f"{home}/bin/nvcc" if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(path, os.X_OK):
        raise CompileError(f"this source needs nvcc, and there is none at {path}; set CUDA_HOME to a CUDA toolkit")
    return path


def to_cubin(source: str, arch: str, options: tuple[str, ...] = ()) -> bytes:
    """Compiles a source (px.cuh goes in front) for an architecture such as "sm_90a"; raises CompileError."""
    with tempfile.TemporaryDirectory() as folder:
        file, cubin = Path(folder, "source.cu"), Path(folder, "source.cubin")
        file.write_text(f'#include "{INCLUDE / "px.cuh"}"\n{source}')
        command = [find(), *_OPTIONS, f"-arch={arch}", *options, "-o", str(cubin), str(file)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"nvcc did not end within {TIMEOUT_S:.0f} s") from None
        if done.returncode:
            message, line = first_error(done.stderr)
            raise CompileError(message, line, done.stderr[:65536])
        return cubin.read_bytes()
