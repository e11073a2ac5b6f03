"""Loads a kernel's text as a module and finds its solution."""

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

from sandbox.protocol.frames import Kind


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
        Path(path).write_text(source, encoding="utf-8")
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    try:
        binary = compile(source, path, "exec", dont_inherit=True)
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
