"""Loads a kernel's text as a module, finds its solution, makes its checked first calls, and describes its exceptions."""

import ast
import importlib.machinery
import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from sandbox.kit.errors import BarrierTimeout, CompileError
from sandbox.memory.slots import DoesNotFit, same_bits
from sandbox.memory.trees import NotATree, flatten
from sandbox.protocol.frames import Kind
from sandbox.rank.iterations import Iterations
from sandbox.rank.problem_code import Leaves, with_mutated

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
    if kernel_path:
        full.stack = traceback.StackSummary.from_list(full.stack[inside[0] :] if inside else [])
    text = "".join(full.format())
    if folder:
        text = text.replace(f"{folder}/", "")
    elif kernel_path:
        text = text.replace(kernel_path, Path(kernel_path).name)
    head = "".join(traceback.format_exception_only(error)).strip()
    return f"{head}\n\n{text}"


class KernelRefused(Exception):
    """The kernel cannot be loaded, or a checked call did something forbidden.

    kind: the kind of failure. line: in the kernel, 0 if unknown.
    """

    def __init__(self, kind: Kind, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.kind = kind
        self.line = line


def load_solution(
    source: str, path: str, parameters: Sequence[tuple[str, Any]], folder: str = ""
) -> Callable[..., Any]:
    """Runs a kernel's text as the module `kernel`, and returns its solution.

    path: where the kernel's text is written. parameters: (name, default) of the baseline's solution. The kernel's must
    accept all of them by position. folder: that of a kernel with several files, which already has the file `path`. Then
    `kernel` is also a package with the folder's modules, and imports search the folder first.

    Raises:
        KernelRefused: it does not compile, or has no solution with this signature.
        Exception: whatever the text raises.
    """
    if not folder:
        Path(path).write_bytes(source.encode())
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    try:
        binary = compile(source, path, "exec", dont_inherit=True)
    except MemoryError:
        raise KernelRefused(Kind.SYNTAX, "MemoryError: what Python can parse is exceeded during compilation") from None
    except (SyntaxError, ValueError) as error:
        text = "".join(traceback.format_exception_only(error)).replace(path, Path(path).name)
        rows = enumerate(source.splitlines(), 1)
        if fence := next((number for number, row in rows if row.startswith("```")), 0):
            text = f"line {fence} is a Markdown fence\n{text}"
        raise KernelRefused(Kind.SYNTAX, text, getattr(error, "lineno", 0) or 0) from None
    module = types.ModuleType("kernel")
    module.__file__ = path
    if folder:
        module.__spec__ = importlib.machinery.ModuleSpec("kernel", None, origin=path, is_package=True)
        module.__package__, module.__path__ = "kernel", [folder]
        module.__spec__.submodule_search_locations = module.__path__
        sys.path.insert(0, folder)
    sys.modules["kernel"] = module
    sys.argv = [Path(path).name]  # a parser at the top level finds its defaults, not this process's arguments
    try:
        exec(binary, module.__dict__)
    except SyntaxError as error:
        if not folder or not str(error.filename).startswith(f"{folder}/"):
            raise
        text = "".join(traceback.format_exception_only(error)).replace(f"{folder}/", "")
        raise KernelRefused(Kind.SYNTAX, text) from None
    solution: Callable[..., Any] | None = getattr(module, "solution", None)
    if not callable(solution):
        if "solution" in vars(module):
            text = f"solution is of type {type(solution).__name__}, which cannot be called"
            raise KernelRefused(Kind.LOAD_FAILED, text, _line_of_solution(source))
        own = [(n, v) for n, v in vars(module).items() if inspect.isfunction(v) or inspect.isclass(v)]
        names = [name for name, value in own if value.__module__ == "kernel"]
        hint = f"; the file defines {', '.join(names[:5])}" if names else ""
        text = f"the function to call is missing{hint}" if source.strip() else "the file is empty"
        raise KernelRefused(Kind.LOAD_FAILED, text)
    _check_signature(solution, parameters, _line_of_solution(source))
    return solution


def _line_of_solution(source: str) -> int:
    """The line that assigns or defines `solution` at the top level; 0 if there is none.

    A code object's line does not help: for a decorated function it is in the decorator's file.
    """
    found = 0
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found = node.lineno if node.name == "solution" else found
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.ImportFrom | ast.Import):
            parts = list(ast.walk(node))
            names = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
            names |= {part.asname or part.name for part in parts if isinstance(part, ast.alias)}
            found = node.lineno if "solution" in names else found
    return found


def _check_signature(solution: Callable[..., Any], parameters: Sequence[tuple[str, Any]], line: int) -> None:
    try:
        inspect.signature(solution).bind(*[None] * len(parameters))
    except TypeError as error:
        names = ", ".join(n if default is None else f"{n}={default}" for n, default in parameters)
        raise KernelRefused(
            Kind.LOAD_FAILED,
            f"the baseline takes ({names}), this function {inspect.signature(solution)}: {error}",
            line,
        ) from None
    except ValueError:
        pass  # a builtin without a signature: the first call decides


def run_checked(
    solution: Callable[..., Any], iterations: Iterations, synchronize: Callable[[], None], begin: Callable[[int], None]
) -> list[Any]:
    """Calls solution on every armed iteration, packs the results into slots, and returns them.

    begin(number): called before the call of this number, from 1 on.

    Raises:
        KernelRefused: a result has the wrong structure or shares memory with an argument, or an input was written.
    """
    problem, results = iterations.code.problem, []
    for number, (arguments, given, _, slot) in enumerate(iterations.armed, 1):
        begin(number)
        result = solution(*arguments)
        results.append(with_mutated(result, given, problem.written))
        try:
            structure, leaves = flatten(results[-1])
            slot.pack(structure, leaves)
        except (NotATree, DoesNotFit) as error:
            raise KernelRefused(Kind.BAD_STRUCTURE, f"solution returned {error}") from None
        iterations.last = (structure, leaves)
        iterations.expect(structure, leaves, slot.room)
        if not problem.check.may_alias:
            _refuse_alias(result, arguments, given, problem.parameters)
    synchronize()
    for arguments, given, drawn, _ in iterations.armed:
        for name, tensor in given.items():
            if name not in problem.mutates and not same_bits(tensor, drawn[name]):
                named = _argument(name, tensor, arguments, problem.parameters)
                raise KernelRefused(Kind.MUTATED, f"solution wrote to its argument {named}")
    return results


def _refuse_alias(result: Any, arguments: Sequence[Any], given: Leaves, parameters: Sequence[tuple[str, Any]]) -> None:
    """Raises KernelRefused if the result is an argument or a view of one."""
    for path, returned in flatten(result)[1]:
        for name, tensor in given.items():
            if returned.numel() and overlaps(returned, tensor):
                named = _argument(name, tensor, arguments, parameters)
                raise KernelRefused(
                    Kind.BAD_STRUCTURE, f"output {path} shares memory with the argument {named}; return a fresh tensor"
                )


def _argument(name: str, tensor: torch.Tensor, arguments: Sequence[Any], parameters: Sequence[tuple[str, Any]]) -> str:
    """The name of the baseline's parameter that gets an input, with the place in a list; the input's if there is none."""
    for (parameter, _), argument in zip(parameters, arguments, strict=False):
        if isinstance(argument, torch.Tensor) and overlaps(argument, tensor):
            return parameter
        if isinstance(argument, list | tuple):
            for place, part in enumerate(argument):
                if isinstance(part, torch.Tensor) and overlaps(part, tensor):
                    return f"{parameter}[{place}]"
    return name


def overlaps(part: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether a tensor begins within another one's memory."""
    begin = whole.data_ptr()
    return begin <= part.data_ptr() < begin + whole.numel() * whole.element_size()
