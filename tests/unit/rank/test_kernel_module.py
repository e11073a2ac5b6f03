"""A kernel's text as a module: what is refused, and which line of the user's own file is named."""

from pathlib import Path

import pytest

from sandbox.rank.kernel.module import KernelRefused, load_solution

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
def test_a_signature_that_does_not_fit_is_named_with_its_line(tmp_path: Path, source: str, line: int) -> None:
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
def test_a_file_without_a_solution_says_what_it_has(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(KernelRefused) as refused:
        load_solution(source, str(tmp_path / "kernel.py"), [("x", None)])
    assert str(refused.value) == words


def test_a_markdown_fence_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelRefused, match="line 2 is a Markdown fence"):
        load_solution("Here it is:\n```python\nx = 1\n```\n", str(tmp_path / "kernel.py"), [])
