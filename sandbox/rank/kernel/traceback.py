"""Describes exceptions of a kernel by its own lines, without the harness's frames."""

import traceback
from pathlib import Path

from sandbox.kit.errors import CompileError


def stand_in(error: BaseException) -> BaseException:
    """An exception of the same name and traceback, for one that cannot be told: its own methods fail."""
    name = type.__dict__["__name__"].__get__(type(error))  # a class of classes may answer something else, or nothing
    kind: type[Exception] = type(str(name), (Exception,), {"__module__": "builtins"})
    return kind("what it says cannot be read").with_traceback(error.__traceback__)


def kernel_line(error: BaseException, kernel_path: str) -> int:
    """The deepest line of the kernel file in the traceback, or 0."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == kernel_path]
    return lines[-1] or 0 if lines else 0


def describe(error: BaseException, kernel_path: str) -> str:
    """The exception with the traceback below the harness's frames; for a compile error the compiler's output."""
    if isinstance(error, CompileError):
        return f"{error.message}\n\n{error.text}"
    full = traceback.TracebackException.from_exception(error, limit=-30)
    inside = [i for i, f in enumerate(full.stack) if f.filename == kernel_path]
    if inside:
        full.stack = traceback.StackSummary.from_list(full.stack[inside[0] :])
    elif kernel_path:
        full.stack = traceback.StackSummary.from_list([])
    text = "".join(full.format())
    if kernel_path:
        text = text.replace(kernel_path, Path(kernel_path).name)
    head = "".join(traceback.format_exception_only(error)).strip()
    return f"{head}\n\n{text}"
