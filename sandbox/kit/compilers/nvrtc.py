"""CUDA C++ to a cubin through NVRTC, as CuPy binds it. Needs no GPU; which GPU to compile for must be
said."""

import functools
import os
import sysconfig
from pathlib import Path
from typing import Any

from sandbox.kit.compilers.gcc import INCLUDE, first_error
from sandbox.kit.errors import CompileError

OPTIONS = (
    "-std=c++17",
    "--device-as-default-execution-space",
    "--diag-suppress=177",  # what a kernel leaves unused of the header is no news
)
HEADER_NAME = "px.cuh"


@functools.cache
def binding() -> Any:
    """CuPy's nvrtc module. Raises CompileError that says what to install."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise CompileError(
            f"cuda.compile needs CuPy with NVRTC ({error}); install it with pip install 'pkb-arena[cuda13]' "
            "or 'pkb-arena[cuda12]', whichever matches torch.version.cuda"
        ) from None
    return nvrtc


def header() -> str:
    """The text of px.cuh."""
    return (INCLUDE / HEADER_NAME).read_text()


@functools.cache
def include_dirs() -> tuple[str, ...]:
    """Directories with cuda_bf16.h, and with libcu++: of torch's own wheels, then of a toolkit."""
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    candidates = [*sorted(site.glob("cu*/include")), site / "cuda_runtime" / "include", toolkit]
    # A jail may hide the toolkit: what cannot be read is not there. CUDA 13 keeps <cuda/atomic> and its kind in a folder below.
    found = [path for path in candidates if os.access(path / "cuda_bf16.h", os.R_OK)]
    below = [path / "cccl" for path in found if os.access(path / "cccl" / "cuda" / "atomic", os.R_OK)]
    return tuple(map(str, found + below))


def to_cubin(source: str, arch: str, options: tuple[str, ...] = ()) -> bytes:
    """Compile a source (px.cuh goes in front) for an architecture such as "sm_90a"; raises CompileError."""
    nvrtc = binding()
    whole = f'#line 1 "{HEADER_NAME}"\n{header()}\n#line 1 "<source>"\n{source}'
    flags = (*OPTIONS, f"--gpu-architecture={arch}", *options, *(f"-I{path}" for path in include_dirs()))
    program = nvrtc.createProgram(whole, "<source>", (), ())
    try:
        nvrtc.compileProgram(program, flags)
        return bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError:
        text = nvrtc.getProgramLog(program)
        message, line = first_error(text)
        raise CompileError(message, line, text[:65536]) from None
    finally:
        nvrtc.destroyProgram(program)
