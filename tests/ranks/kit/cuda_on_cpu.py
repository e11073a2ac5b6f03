"""Replaces `sandbox.kit.cuda` on CPU ranks: g++ compiles CUDA source, and emulation.h runs it. Only for tests."""

import contextlib
import ctypes
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from waiting import PATIENCE_S

from sandbox.kit import blocks, cuda
from sandbox.kit.compilers import gcc, nvrtc
from sandbox.kit.compilers.arguments import Function, Parameter, converter, ctypes_of, exported
from sandbox.kit.symmetric_memory.team import Team

KIT_BLOCKS = (
    "reshard", "attention", "candidates", "clipping", "columns", "experts", "fan_out", "fourier",
    "perceptron", "quantisation", "rows", "scattered_gemm", "sharded_adam", "side_stream", "sums", "truncation", "zero_step",
)  # fmt: skip
"""Modules of the kit that launch kernels for house kernels."""
SMALL = {"BLOCKS": 5, "THREADS": 64, "CHUNK": 4096, "CACHED": 4096, "LARGE": 0, "ONE_BARRIER": 0, "ALIGNED": 2}
SMALL |= {"LONGEST": 256, "STEP": 3}
"""Constants for small launches: few threads suffice. Test sizes give several blocks, chunks, slices and loop turns."""
HERE = Path(__file__).parent / "emulated"
_TOP = re.compile(r"^(?:template[^\n]*)?(?:PX_DI|template <> __device__)[^\n]*(?:\n(?:    |\})[^\n]*)*", re.MULTILINE)
_TIMEOUT = "PX_TIMEOUT_MS 2000"


def _portable_header() -> str:
    """Returns px.cuh without its functions in PTX; emulation_px.h has replacements."""
    text = nvrtc.header().replace("#pragma once", "").replace(_TIMEOUT, "PX_TIMEOUT_MS 60000")
    missing: list[str] = []

    def kept(match: re.Match[str]) -> str:
        if "asm" not in match[0]:
            return match[0]
        missing.append(match[0])
        special = re.search(r"from_float<(bf16|f16)>", match[0])
        if special is None:
            return ""
        kind = special[1]
        body = (
            "r.bits = emu_bf16(value);" if kind == "bf16" else "_Float16 h = (_Float16)value; memcpy(&r.bits, &h, 2);"
        )
        return f"template <> __device__ __forceinline__ {kind} from_float<{kind}>(float value) {{ {kind} r; {body} return r; }}"

    before, after = _TOP.sub(kept, text).split("// --- 16-bit floats", 1)
    head, tail = after.split("struct __align__(2) f16 { u16 bits; };", 1)
    tail = tail.split("// --- TMA", 1)[0]
    return (
        f'{before}// --- 16-bit floats{head}struct __align__(2) f16 {{ u16 bits; }};\n#include "emulation_px.h"\n{tail}'
    )


launched: set[str] = set()
"""Names of the kernels that were launched in this process."""
compiled: list[str] = []
"""Kernels compiled since the last host barrier of a team (`Team._host_barrier`)."""
compiled_late: set[str] = set()
"""Kernels that were in `compiled` when a kernel was launched that may wait for its peers."""


class _Kernel:
    def __init__(self, function: Function, library: ctypes.CDLL) -> None:
        self.name = function.name
        self.call = library[f"emu_run_{function.name}"]
        self.call.restype = None
        self.convert = [converter(p, i, function, "cpu") for i, p in enumerate(function.parameters)]
        self.types = [_type_of(p) for p in function.parameters]
        self.takes_px = any(p.is_px for p in function.parameters)

    @property
    def cooperative(self) -> "_Kernel":
        return self

    def __getitem__(self, shape: tuple[Any, ...]) -> Any:
        grid = shape[0] if isinstance(shape[0], tuple) else (shape[0],)
        assert len(shape) == 2, "the emulation has no dynamic shared memory"
        assert all(isinstance(extent, int) and extent > 0 for extent in grid), grid

        def launch(*arguments: Any) -> None:
            assert len(arguments) == len(self.convert), f"{self.name} takes {len(self.convert)} arguments"
            launched.add(self.name)
            if self.takes_px:
                compiled_late.update(compiled)
                compiled.clear()
            ready = []
            for value, convert, passed_as in zip(arguments, self.convert, self.types, strict=True):
                ready.append(passed_as(convert(value)))
            extents = (ctypes.c_uint * 2)(*(*grid, 1)[:2])
            self.call(extents, ctypes.c_uint(shape[1]), *ready)

        return launch


def _type_of(parameter: Parameter) -> Callable[[Any], Any]:
    """Returns the function that makes a ctypes value of a converted argument. Structs are passed as they are."""
    if parameter.pointers:
        return ctypes.c_void_p
    return ctypes_of(parameter.scalar) if parameter.scalar else lambda struct: struct


class Stream:
    """A stream that runs all work immediately."""

    def __init__(self, priority: int = 0) -> None:
        self.priority = priority

    def wait_event(self, event: None) -> None:
        """Does nothing: no work is ever pending."""

    def record_event(self) -> None:
        """Does nothing and returns no event."""


class Module:
    def __init__(self, kernels: dict[str, _Kernel]) -> None:
        self.__dict__.update(kernels)


def compile(source: str, options: Any = (), arch: Any = None, *, front: str = "", behind: str = "") -> Module:
    """Compiles like cuda.compile, for the CPU. front, behind: source before and after px.cuh; options: for g++."""
    functions = [function for function in exported(source).values() if function.kernel]
    runs = []
    for function in functions:
        listed = ", ".join(f"{p.type} {p.name}" for p in function.parameters)
        names = ", ".join(p.name for p in function.parameters)
        runs.append(
            f'extern "C" void emu_run_{function.name}(const unsigned* emu_grid, unsigned emu_threads, {listed})'
            f" {{ emu_launch(emu_grid, emu_threads, [=] {{ {function.name}({names}); }}); }}"
        )
    whole = '#include "emulation.h"\n' + front + _portable_header() + behind
    text = whole + "\n#line 1\n" + source + "\n" + "\n".join(runs)
    folder = Path(tempfile.gettempdir()) / f"pkb-emulated-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    own = "".join((HERE / name).read_text() for name in ("emulation.h", "emulation_px.h"))
    stem = hashlib.sha256((text + own + repr(options)).encode()).hexdigest()[:24]
    library = folder / f"{stem}.so"
    if not library.exists():
        unfinished = folder / f"{stem}.{os.getpid()}"
        written = unfinished.with_name(unfinished.name + ".cpp")
        written.write_text(text)
        command = ["g++", "-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-w", "-fpermissive", "-pthread", f"-I{HERE}"]
        done = subprocess.run(
            [*command, *options, "-o", str(unfinished), str(written)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise AssertionError(done.stderr[:4000])
        os.replace(unfinished, library)
    loaded = ctypes.CDLL(str(library))
    compiled.extend(function.name for function in functions)
    return Module({function.name: _Kernel(function, loaded) for function in functions})


def compile_kittens(source: str, headers: Path) -> Module:
    """Compiles like kittens.compile, for the CPU. headers: a checkout whose headers g++ can compile."""
    views = (gcc.INCLUDE / "px_kittens.cuh").read_text().replace("#pragma once", "")
    front = "#define __host__\n#define bf16 px_bf16\n#define f16 px_f16\n"
    behind = f"\n#undef bf16\n#undef f16\n{views}"
    options = ("-std=c++20", "-DKITTENS_HOPPER", "-DKITTENS_NO_HOST", f"-I{headers / 'include'}")
    return compile(source, options, front=front, behind=behind)


def host_barrier_as_ever(team: Team, *given: Any, barrier: Any = Team._host_barrier) -> None:
    """Calls Team._host_barrier and clears `compiled`: all ranks have compiled those kernels afterwards."""
    compiled.clear()
    barrier(team, *given)


def forget_blocks() -> None:
    """Removes the imported blocks of the kit, so that they are imported anew, emulated or not."""
    for block in KIT_BLOCKS:
        sys.modules.pop(f"sandbox.kit.blocks.{block}", None)
        blocks.__dict__.pop(block, None)  # else `from sandbox.kit.blocks import ...` finds the old one


def interpret_triton() -> None:
    """Runs Triton kernels in its interpreter, with a new dot: its own multiplies the integers that store bfloat16."""
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    def numbers(handle: Any) -> Any:
        narrow = handle.dtype.scalar == tl.bfloat16
        return (handle.data.astype(np.uint32) << 16).view(np.float32) if narrow else handle.data

    def create_dot(builder: Any, a: Any, b: Any, total: Any, *_: Any) -> Any:
        product = np.matmul(numbers(a), numbers(b), dtype=total.data.dtype)
        return interpreter.TensorHandle(product + total.data, total.dtype.scalar)

    interpreter.InterpreterBuilder.create_dot = create_dot


def as_on_gpus(text: str, name: str) -> types.ModuleType:
    """Returns a kernel's source as a module whose CUDA path runs on the CPU, in small launches."""
    cuda.compile = compile  # type: ignore[assignment]
    Team._host_barrier = host_barrier_as_ever  # type: ignore[method-assign]
    if "sandbox.kit.blocks import attention_gradients" in text:
        interpret_triton()
    torch.cuda.Stream = torch.cuda.current_stream = Stream  # type: ignore[assignment, misc]
    torch.cuda.stream = lambda stream: contextlib.nullcontext()  # type: ignore[assignment]
    folder = Path(cuda.__file__).parent / "blocks"
    for block in KIT_BLOCKS:
        if f"sandbox.kit.blocks.{block}" not in sys.modules:
            path = folder / f"{block}.py"
            _executed(path.read_text(), f"sandbox.kit.blocks.{block}", str(path))
    return _executed(text, name)


def _executed(text: str, name: str, file: str = "") -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = file
    exec(text.replace(".is_cuda", ".is_cpu"), module.__dict__)
    module.__dict__.update({known: value for known, value in SMALL.items() if known in module.__dict__})
    return module
