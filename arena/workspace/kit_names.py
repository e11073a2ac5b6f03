"""The names that kernels import from the kit, read from its source: importing the kit would load torch."""

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import sandbox
from sandbox.machine.backends import BACKENDS

_KIT = "sandbox.kit."
MODULES = ("symm", "cuda", "cpp", *(m.removeprefix(_KIT) for b in BACKENDS for m in b.modules if m.startswith(_KIT)))
"""Modules of `sandbox.kit` that kernels call by name."""


class KitName(NamedTuple):
    """A function or an attribute of a module of the kit."""

    module: str
    name: str
    parameters: str
    """Parameters without types: "(x, tag=None)"; empty for an attribute."""
    types: str
    """Parameters with types, and the result: "(x: torch.Tensor) -> list[int]"; ": int" for an attribute."""
    doc: str
    """The first paragraph of its documentation, in one line."""

    @property
    def call(self) -> str:
        """The call as written in a kernel: "symm.stage(x, tag=None)"."""
        return f"{self.module}.{self.name}{self.parameters}"


@cache
def kit_names(module: str) -> tuple[KitName, ...]:
    """Returns the public functions and attributes of one of MODULES, by name. The first call takes milliseconds."""
    body = _body(f"sandbox.kit.{module}")
    constants = _constants(body)
    found = []
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            found.append(_function(module, node, constants))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(KitName(module, node.target.id, "", f": {ast.unparse(node.annotation)}", _text(below)))
    return tuple(sorted(name for name in found if not name.name.startswith("_")))


def _body(module: str) -> list[ast.stmt]:
    path = Path(sandbox.__path__[0]).joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8")).body


def _constants(body: Iterable[ast.stmt]) -> dict[str, ast.Constant]:
    """Returns the constants that a module imports from the kit, by name, for their values as defaults."""
    names = {
        alias.name: node.module
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sandbox.kit")
        for alias in node.names
        if alias.name.isupper()
    }
    return {
        target.id: node.value
        for module in set(names.values())
        for node in _body(module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and names.get(target.id) == module
    }


def _function(module: str, node: ast.FunctionDef, constants: Mapping[str, ast.Constant]) -> KitName:
    node.args.defaults = [
        constants.get(default.id, default) if isinstance(default, ast.Name) else default
        for default in node.args.defaults
    ]
    typed = f"({ast.unparse(node.args)})"
    if node.returns is not None:
        typed += f" -> {ast.unparse(node.returns)}"
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    plain = f"({ast.unparse(node.args)})"
    return KitName(module, node.name, plain, typed, _first_paragraph(ast.get_docstring(node) or ""))


def _text(node: ast.stmt | None) -> str:
    """Returns the first paragraph of the docstring below an attribute."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return _first_paragraph(node.value.value)
    return ""


def _first_paragraph(doc: str) -> str:
    return " ".join(doc.partition("\n\n")[0].split())
