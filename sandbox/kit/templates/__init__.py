"""Texts of starter kernels. Each contains the baseline, so that it passes before the first edit.

A template is a Python file with placeholders in comments and docstrings: `__PROBLEM__` (id and title),
`__SIGNATURE__` (`solution(...)` with the baseline's parameters), and the line `# __BASELINE__`, which the
baseline's code replaces. Templates of GPU backends are made from an example of an all-reduce: `_EXAMPLES`.
"""

import ast
import sys
from collections.abc import Sequence
from pathlib import Path

_FOLDER = Path(__file__).parent
_OWN = {"problems", "sandbox"}
_EXAMPLES = {
    "cuda": (
        "examples/allreduce_two_shot_cuda.py",
        """CUDA C++ for GPU ranks. Available: Px (rank, world), px_at, px_barrier, px_signal, px_wait, px_ld16 and px_st16
(16 bytes), low-latency words, TMA bulk copies and adds, bf16 and f16; see sandbox/kit/include/px.cuh.""",
    ),
    "nccl": (
        "nccl/examples/allreduce_nccl.py",
        """CUDA C++ over NCCL's device API, for two or more GPUs. Available: windows (nccl.window), ncclGetLsaPointer,
ncclLsaBarrierSession, ncclLLA2ASession, and all of px.cuh; see help(sandbox.kit.nccl).""",
    ),
    "shmem": (
        "shmem/examples/allreduce_shmem.py",
        """CUDA C++ over NVSHMEM, for two or more GPUs. Available: all of px.cuh on NVSHMEM's memory, and with shmem.compile
NVSHMEM's device functions by name; see help(sandbox.kit.shmem).""",
    ),
}
"""By template: the example, and the start of the docstring."""


def names() -> list[str]:
    """The templates there are: "torch", "symm", "cpp"..."""
    return sorted([*_EXAMPLES, *(path.stem for path in _FOLDER.glob("*.py") if path.stem != "__init__")])


def fill(name: str, problem: str, signature: str, baseline: str) -> str:
    """The text of a starter kernel.

    name: one of `names()`. problem: for the docstring, for example "13 · Row-parallel GEMM + all-reduce".
    signature: "solution(A_local, B_local)". baseline: the source of the problem's baseline.py.
    """
    text = _from_example(*_EXAMPLES[name]) if name in _EXAMPLES else (_FOLDER / f"{name}.py").read_text()
    text = text.removeprefix("# mypy: ignore-errors\n")
    text = text.replace("__PROBLEM__", problem).replace("__SIGNATURE__", signature)
    return with_baseline(text, baseline)


def _from_example(file: str, start: str) -> str:
    """A template whose kernel `all_reduce` is the solution of an example."""
    text = (_FOLDER.parent / file).read_text().replace("def solution(", "def all_reduce(")
    remark = "solution() is still the baseline. all_reduce() below it is a whole kernel. Put more of the problem into its launch."
    about, code = text.removeprefix('"""').split('"""\n', 1)
    last = _imports(code)[-1].end_lineno or 0
    lines = code.splitlines(keepends=True)
    code = "".join([*lines[:last], "\n# __BASELINE__\n\n", *lines[last:]])
    return f'"""__PROBLEM__\n\n    __SIGNATURE__\n\n{start}\n{remark}\n\n{about}"""\n{code}'


def with_baseline(text: str, baseline: str) -> str:
    """A text with the baseline's code in the place of its line `# __BASELINE__`, and the imports of both in one block."""
    if "# __BASELINE__\n" not in text:
        return text
    own, theirs = _imports(text), _imports(baseline)
    block = _import_block({ast.unparse(node) for node in own + theirs})
    code = _without(baseline, [*theirs, *_opening(baseline)])
    code = f"\n{code}" if code.startswith(("def ", "class ", "@", "#")) else code
    if not own:
        return text.replace("# __BASELINE__\n", f"{block}\n{code}")
    lines = text.splitlines(keepends=True)
    first, last = own[0].lineno, own[-1].end_lineno or own[-1].lineno
    return "".join([*lines[: first - 1], block, *lines[last:]]).replace("# __BASELINE__\n", code)


def _imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    """The imports at the top of a text, but those of `__future__`, which may only stand at the top of a file."""
    found = (node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom))
    return [node for node in found if getattr(node, "module", "") != "__future__"]


def _import_block(statements: set[str]) -> str:
    """Imports as a formatter orders them: the standard library's, other packages', the arena's own."""
    groups: dict[int, list[str]] = {}
    for statement in sorted(statements, key=lambda each: (each.startswith("from"), each)):
        package = statement.split()[1].partition(".")[0]
        group = 0 if package in sys.stdlib_module_names else 2 if package in _OWN else 1
        groups.setdefault(group, []).append(statement)
    return "\n\n".join("\n".join(groups[group]) for group in sorted(groups)) + "\n"


def _opening(text: str) -> list[ast.stmt]:
    """A text's docstring and its imports of `__future__`."""
    body = ast.parse(text).body
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    future = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return [*body[:docstring], *future]


def _without(text: str, nodes: Sequence[ast.stmt]) -> str:
    """A text without these statements."""
    dropped = {n for node in nodes for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(text.splitlines(keepends=True), 1)
    return "".join(line for number, line in lines if number not in dropped).strip("\n") + "\n"
