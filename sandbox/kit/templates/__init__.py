"""Texts of starter kernels, each with the baseline inside, so that every one is right before its first edit.

A template is a Python file with placeholders in comments and docstrings: `__PROBLEM__` (id and title),
`__SIGNATURE__` (`solution(...)` with the baseline's parameters), and the line `# __BASELINE__`, which the
baseline's code replaces.
"""

import ast
from pathlib import Path

_FOLDER = Path(__file__).parent
_IMPORTS = (ast.Import, ast.ImportFrom)


def names() -> list[str]:
    """The templates there are: "torch", "symm", "cpp"..."""
    return sorted(path.stem for path in _FOLDER.glob("*.py") if path.stem != "__init__")


def fill(name: str, problem: str, signature: str, baseline: str) -> str:
    """The text of a starter kernel.

    name: one of `names()`. problem: for the docstring, for example "13 · Row-parallel GEMM + all-reduce".
    signature: "solution(A_local, B_local)". baseline: the source of the problem's baseline.py.
    """
    text = (_FOLDER / f"{name}.py").read_text().removeprefix("# mypy: ignore-errors\n")
    text = text.replace("__PROBLEM__", problem).replace("__SIGNATURE__", signature)
    return with_baseline(text, baseline)


def with_baseline(text: str, baseline: str) -> str:
    """A text with the baseline's code in the place of its line `# __BASELINE__`."""
    if "# __BASELINE__\n" not in text:
        return text
    imported = {ast.unparse(node) for node in ast.parse(text).body if isinstance(node, _IMPORTS)}
    return text.replace("# __BASELINE__\n", _code(baseline, imported))


def _code(baseline: str, imported: set[str]) -> str:
    """The baseline without its docstring, without its `from __future__` lines, which may only stand at the top of
    a file, and without what is imported already."""
    lines = baseline.splitlines(keepends=True)
    dropped: set[int] = set()
    for index, node in enumerate(ast.parse(baseline).body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        again = isinstance(node, _IMPORTS) and ast.unparse(node) in imported
        if docstring or future or again:
            dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return "".join(line for number, line in enumerate(lines, 1) if number not in dropped).strip("\n") + "\n"
