"""Sorts exceptions of a kernel by kind, and describes them by its own lines, without the harness's frames."""

import traceback
from pathlib import Path

import torch

from sandbox.kit.errors import BarrierTimeout, CompileError
from sandbox.protocol.frames import Kind

GPU_FAULTS = frozenset({214, 700, 702, *range(710, 720)})
"""Errors of CUDA after which a context is unusable: memory, addresses, instructions, traps. The driver and the runtime
use the same numbers. The other errors are wrong calls."""


def stand_in(error: BaseException) -> BaseException:
    """An exception of the same name and traceback, to report one whose own methods fail."""
    name = type.__dict__["__name__"].__get__(type(error))  # a metaclass may return something else, or fail
    kind: type[Exception] = type(str(name), (Exception,), {"__module__": "builtins"})
    return kind("what it says cannot be read").with_traceback(error.__traceback__)


def kernel_line(error: BaseException, kernel_path: str) -> int:
    """The deepest line of the kernel file in the traceback, or 0."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == kernel_path]
    return lines[-1] or 0 if lines else 0


def deepest(error: BaseException, folder: str) -> str:
    """The deepest file of the traceback that is in a folder; empty if there is none."""
    inside = [f.filename for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(f"{folder}/")]
    return inside[-1] if inside else ""


def failure_kind(error: BaseException, *, loading: bool) -> Kind:
    """The kind of failure of an exception of the kernel's code. loading: the kernel has no solution yet.

    A GPU fault is reported by the first call that notices it: one of torch, or a launch of CuPy, whose errors have a `status`.
    """
    text = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
        return Kind.NO_MEMORY
    if isinstance(error, CompileError):
        return Kind.COMPILE_FAILED
    if isinstance(error, BarrierTimeout):
        return Kind.STALLED
    of_cupy = type(error).__name__ in ("CUDADriverError", "CUDARuntimeError")
    if isinstance(error, torch.AcceleratorError) or (of_cupy and getattr(error, "status", 0) in GPU_FAULTS):
        return Kind.DEVICE
    return Kind.LOAD_FAILED if loading else Kind.RAISED


def describe(error: BaseException, kernel_path: str, folder: str = "") -> str:
    """The exception with the traceback below the harness's frames; for a compile error the compiler's output.

    folder: that of a kernel with several files, which the text names by their paths in it.
    """
    if isinstance(error, CompileError):
        text = error.text.replace(f"{folder}/", "") if folder else error.text
        return f"{error.message}\n\n{text}"
    full = traceback.TracebackException.from_exception(error, limit=-30)
    inside = [i for i, f in enumerate(full.stack) if f.filename == kernel_path]
    if inside:
        full.stack = traceback.StackSummary.from_list(full.stack[inside[0] :])
    elif kernel_path:
        full.stack = traceback.StackSummary.from_list([])
    text = "".join(full.format())
    if folder:
        text = text.replace(f"{folder}/", "")
    elif kernel_path:
        text = text.replace(kernel_path, Path(kernel_path).name)
    head = "".join(traceback.format_exception_only(error)).strip()
    return f"{head}\n\n{text}"
