"""CUDA C++ to a cubin through NVRTC, by CuPy's binding. Needs no GPU; the caller names the architecture."""

import functools
import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandbox.kit.compilers.build import TIMEOUT_S
from sandbox.kit.compilers.gcc import INCLUDE, first_error
from sandbox.kit.errors import CompileError
from sandbox.machine.nvshmem_package import nvcc

OPTIONS: tuple[str, ...] = (
    "-std=c++17",
    "--device-as-default-execution-space",
    "--diag-suppress=177",  # unused functions of the header need no warning
)
HEADER_NAME = "px.cuh"
_NONE: Mapping[str, str] = MappingProxyType({})


def set_timeout(ms: int) -> None:
    """Sets how long a wait in a kernel lasts before it traps, for all later compilations of this process."""
    global OPTIONS
    OPTIONS = (*OPTIONS, f"-DPX_TIMEOUT_MS={ms}")


@functools.cache
def binding() -> Any:
    """CuPy's nvrtc module. Raises CompileError that names what to install."""
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
    """Directories with cuda_bf16.h or libcu++: of torch's wheels, then of a toolkit; else CuPy's libcu++."""
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    candidates = [*sorted(site.glob("cu*/include")), site / "cuda_runtime" / "include", toolkit]
    # A jail may hide the toolkit, so unreadable files count as missing. CUDA 13 has libcu++ in a subfolder.
    found = [path for path in candidates if os.access(path / "cuda_bf16.h", os.R_OK)]
    below = [path / "cccl" for path in found]
    if found and not any(map(_has_libcu, found + below)) and (cupy := find_spec("cupy")) is not None:
        below = [Path(str(cupy.origin)).parent / "_core" / "include" / "cupy" / "_cccl" / "libcudacxx"]
    return tuple(map(str, found + list(filter(_has_libcu, below))))


def _has_libcu(path: Path) -> bool:
    return os.access(path / "cuda" / "atomic", os.R_OK)


def to_cubin(
    source: str, arch: str, options: tuple[str, ...] = (), front: str | None = None, headers: Mapping[str, str] = _NONE
) -> bytes:
    """Compiles a source for an architecture such as "sm_90a"; raises CompileError.

    front: the text in front of it; px.cuh if not given. headers: texts that are in no file, by their names in an
    #include.
    """
    nvrtc = binding()
    whole = f'#line 1 "{HEADER_NAME}"\n{header() if front is None else front}\n#line 1 "<source>"\n{source}'
    flags = (*OPTIONS, f"--gpu-architecture={arch}", *options, *(f"-I{path}" for path in include_dirs()))
    texts, names = ([word.encode() for word in words] for words in (headers.values(), headers))
    program = nvrtc.createProgram(whole, "<source>", texts, names)
    try:
        nvrtc.compileProgram(program, flags)
        return bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError:
        text = nvrtc.getProgramLog(program)
        message, line = first_error(text)
        raise CompileError(message, line, text[:65536]) from None
    finally:
        nvrtc.destroyProgram(program)


_NVCC_OPTIONS = ("-cubin", "-std=c++17", "--expt-relaxed-constexpr", "-diag-suppress=177")


def nvcc_to_cubin(source: str, arch: str, options: tuple[str, ...] = ()) -> bytes:
    """Does the same through nvcc, in one or two seconds, for headers that NVRTC cannot compile."""
    compiler = nvcc()
    if compiler is None:
        raise CompileError("this source needs nvcc, and there is none here; set CUDA_HOME to a CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        file, cubin = Path(folder, "source.cu"), Path(folder, "source.cubin")
        file.write_text(f'#include "{INCLUDE / "px.cuh"}"\n{source}')
        command = [compiler, *_NVCC_OPTIONS, f"-arch={arch}", *options, "-o", str(cubin), str(file)]
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
