"""The names that kernels import from the kit, read from its source: importing the kit would load torch."""

import ast
from functools import cache
from itertools import zip_longest
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
    path = Path(sandbox.__path__[0]) / "kit" / module
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    found = []
    for node, below in zip_longest(body, body[1:]):
        match node, below:
            case ast.FunctionDef(returns=ast.expr() as result), _:
                found.append(_function(module, node, result))
            case ast.AnnAssign(ast.Name(name), annotation), ast.Expr(ast.Constant(str(doc))):
                found.append(KitName(module, name, "", f": {ast.unparse(annotation)}", _first_paragraph(doc)))
    return tuple(sorted(name for name in found if not name.name.startswith("_")))


def _function(module: str, node: ast.FunctionDef, result: ast.expr) -> KitName:
    typed = f"({ast.unparse(node.args)}) -> {ast.unparse(result)}"
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    plain = f"({ast.unparse(node.args)})"
    return KitName(module, node.name, plain, typed, _first_paragraph(ast.get_docstring(node) or ""))


def _first_paragraph(doc: str) -> str:
    return " ".join(doc.partition("\n\n")[0].split())
