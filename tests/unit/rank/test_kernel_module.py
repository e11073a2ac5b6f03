"""A kernel's source as a module: what is refused, and exceptions, with the line of the user's file."""

import inspect
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sandbox.kit.errors import BarrierTimeout, CompileError
from sandbox.protocol.frames import Kind
from sandbox.rank import kernel_module
from sandbox.rank.kernel_module import KernelRefused, describe, failure_kind, kernel_line, load_solution, stand_in

DECORATED = """
import functools


def plain(f):
    @functools.cache
    def inner(*a, b):
        return f(*a, b)
    return inner


@plain
def solution(x, y):
    return x
"""


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import torch\n\n\ndef solution(a, b, c):\n    return a\n", 4),
        (DECORATED, 13),
        ("def f(a, b):\n    return a\n\n\nsolution = f\n", 5),
        ("from operator import add as solution\n", 1),
        ("def f(a, b): ...\nglobals()['solution'] = f\n", 0),
        ("def f(a, b): ...\n\nsolution = f\nlaunch = solution\n", 3),
        ("solution = None\nclass solution:\n    def __init__(self, a, b): ...\n", 2),
    ],
)
def test_misfit_signature_is_named_with_its_line(tmp_path: Path, source: str, line: int) -> None:
    with pytest.raises(KernelRefused, match="the baseline takes") as refused:
        load_solution(source, str(tmp_path / "kernel.py"), [("x", None)])
    assert refused.value.line == line
    assert 0 <= refused.value.line <= source.count("\n")
    assert "the baseline takes (x), this function (" in str(refused.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\n", "the file is empty"),
        ("x = 1\n", "the function to call is missing"),
        ("def solve(x):\n    return x\n", "the function to call is missing; the file defines solve"),
        ("class ModelNew:\n    pass\n", "the function to call is missing; the file defines ModelNew"),
        ("solution = 5\n", "solution is of type int, which cannot be called"),
        ("solution: int | None = None\n", "solution is of type NoneType, which cannot be called"),
    ],
)
def test_file_without_solution_says_what_it_has(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(KernelRefused) as refused:
        load_solution(source, str(tmp_path / "kernel.py"), [("x", None)])
    assert str(refused.value) == words


def test_why_a_text_is_no_program(tmp_path: Path) -> None:
    for source, words in (("Here:\n```\n", "line 2 is a Markdown fence"), (f"{'-' * 200_000}1", "exceeded")):
        with pytest.raises(KernelRefused, match=words):
            load_solution(source, str(tmp_path / "kernel.py"), [])


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test, removes the modules that its kernel imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["launcher", "{}"])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules beside kernel.py."""
    (tmp_path / "parts").mkdir()
    core = "from ..sibling import TWO\nfrom . import other\nFIVE = TWO + other.THREE\n"
    (tmp_path / "parts/core.py").write_text(core)
    (tmp_path / "parts/other.py").write_text("THREE = 3\n")
    (tmp_path / "sibling.py").write_text("TWO = 2\n")
    return tmp_path


def load(folder: Path, source: str) -> Any:
    (folder / "kernel.py").write_text(source)
    return load_solution(source, str(folder / "kernel.py"), [("x", None)], str(folder))


@pytest.mark.parametrize("line", ["from .parts.core import FIVE", "from sibling import TWO\nFIVE = TWO + 3"])
def test_a_folder_has_relative_and_sibling_imports(folder: Path, line: str) -> None:
    assert load(folder, f"{line}\ndef solution(x):\n    return x * FIVE\n")(2) == 10


def test_a_syntax_error_in_another_file_names_it(folder: Path) -> None:
    (folder / "sibling.py").write_text("TWO = (\n")
    with pytest.raises(KernelRefused, match=r'^  File "sibling.py", line 1') as refused:
        load(folder, "import sibling\ndef solution(x): ...\n")
    assert refused.value.line == 0  # no line of kernel.py
    for files in (str(folder), ""):
        with pytest.raises(SyntaxError):  # of a text that is in no file of the kernel
            load_solution("compile('(', 'text', 'exec')", str(folder / "kernel.py"), [("x", None)], files)


def test_parser_at_top_level_takes_its_defaults(tmp_path: Path) -> None:
    source = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--size', default=3)\n"
        "size = parser.parse_args().size\ndef solution(x):\n    return x * size\n"
    )
    assert load_solution(source, str(tmp_path / "kernel.py"), [("x", None)])(2) == 6


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    @property
    def line(self) -> int:
        raise SystemExit


class Liar(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class Nameless(Exception, metaclass=Liar):
    pass


@pytest.mark.parametrize("error", [Unspeakable(), Nameless()])
def test_exception_whose_own_methods_fail_has_stand_in(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        told = stand_in(caught)
    name = "Unspeakable" if isinstance(error, Unspeakable) else "Nameless"
    assert str(told) == "what it says cannot be read"
    assert describe(told, __file__).startswith(f"{name}: what it says cannot be read")
    assert 'File "test_kernel_module.py", line' in describe(told, __file__)
    assert kernel_line(told, __file__) > 0


class CUDADriverError(RuntimeError):
    """An exception like CuPy's."""

    def __init__(self, status: int) -> None:
        super().__init__("CUDA_ERROR")
        self.status = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), Kind.NO_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), Kind.NO_MEMORY),
        (CompileError("kernel:2: expected a `;`"), Kind.COMPILE_FAILED),
        (BarrierTimeout("rank 1 did not come", [1]), Kind.STALLED),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), Kind.DEVICE),
        (CUDADriverError(700), Kind.DEVICE),
        (CUDADriverError(719), Kind.DEVICE),
        (CUDADriverError(1), Kind.RAISED),
        (ZeroDivisionError(), Kind.RAISED),
    ],
)
def test_gpu_fault_keeps_its_kind_whoever_noticed(error: Exception, kind: Kind) -> None:
    assert failure_kind(error, loading=False) is kind
    assert failure_kind(error, loading=True) is (Kind.LOAD_FAILED if kind is Kind.RAISED else kind)


def test_module_is_found_by_what_inspects_it(tmp_path: Path) -> None:
    text = "def solution(x):\n    return x\n"
    solution = load_solution(text, str(tmp_path / "kernel.py"), [("x", None)])
    assert inspect.getsource(solution) == text == (tmp_path / "kernel.py").read_text()
    assert (solution.__module__, solution.__globals__["__file__"]) == ("kernel", str(tmp_path / "kernel.py"))
    assert sys.modules["kernel"].solution is solution
    (tmp_path / "kernel.py").write_text("another text")  # what was loaded is shown
    assert linecache.getlines(str(tmp_path / "kernel.py")) == text.splitlines(keepends=True)
    module = load(tmp_path, text).__globals__
    assert (module["__package__"], module["__path__"]) == ("kernel", [str(tmp_path)])
    spec = module["__spec__"]
    assert (spec.name, spec.origin, spec.submodule_search_locations) == (
        "kernel",
        f"{tmp_path}/kernel.py",
        [str(tmp_path)],
    )


def test_argument_is_named_by_its_memory() -> None:
    x, parts = torch.zeros(16), [torch.zeros(4), torch.zeros(4)]
    parameters, arguments = [("n", None), ("x", None), ("parts", None)], (3, x, parts)
    for tensor, name in (
        (x, "x"),
        (x[:1], "x"),
        (parts[0], "parts[0]"),
        (parts[1], "parts[1]"),
        (torch.zeros(4), "own"),
    ):
        assert kernel_module._argument("own", tensor, arguments, parameters) == name
    given = {"x": x, "part": parts[1], "hidden": torch.zeros(2)}
    with pytest.raises(KernelRefused, match="the argument hidden;"):
        kernel_module._refuse_alias(given["hidden"], arguments, given, parameters)
    for result, words in (
        (x[15:], "output out .* the argument x;"),
        ([1, parts[1]], r"output 1 .* argument parts\[1\];"),
    ):
        with pytest.raises(KernelRefused, match=words) as refused:
            kernel_module._refuse_alias(result, arguments, given, parameters)
        assert refused.value.kind is Kind.BAD_STRUCTURE
    for result in (x[:0], x.clone(), None):
        kernel_module._refuse_alias(result, arguments, given, parameters)


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("from inner import fails as solution", "inner.py", 0),
        ("from json import loads as solution", "", 0),
        ("import inner\ndef solution(x):\n    x[1]", "kernel.py", 3),
        ("import inner\ndef solution(x):\n    inner.fails(x)", "inner.py", 3),
    ],
)
def test_deepest_file_of_folder_is_found(folder: Path, text: str, file: str, line: int) -> None:
    (folder / "inner.py").write_text("def fails(x):\n    {}['key']\n")
    solution = load(folder, text + "\n")
    with pytest.raises((LookupError, ValueError)) as raised:
        solution("[")
    assert kernel_module.deepest(raised.value, str(folder)) == (f"{folder}/{file}" if file else "")
    assert kernel_line(raised.value, f"{folder}/kernel.py") == line
    told = describe(raised.value, f"{folder}/kernel.py", str(folder))
    assert (str(folder) in told, "test_kernel_module" in told) == (False, False)
