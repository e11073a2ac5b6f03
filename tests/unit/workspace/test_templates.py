"""Starters: a kernel file for the problem at hand, whichever template it comes from."""

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from arena.workspace.named_kernels import signature, starter, template_names
from problems.catalogue import load_catalogue
from problems.specification import Problem, find_solution


@pytest.mark.parametrize("template", template_names())
def test_starter_has_baselines_parameters_and_names_its_problem(problem: Problem, template: str) -> None:
    text = starter(problem, template)
    solution = find_solution(text)
    assert [argument.arg for argument in solution.args.args] == ["A_local", "B_local"]
    assert "__PROBLEM__" not in text
    assert "__BASELINE__" not in text
    if template != "baseline":
        words = ast.get_docstring(ast.parse(text)) or ""
        assert problem.title in words
        assert signature(problem) in words


@pytest.mark.problems
def test_imports_of_starters_stand_in_order_of_formatter(tmp_path: Path) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "I,E402", "--line-length", "200"]
    ruff += ["--config", 'lint.isort.known-first-party = ["problems", "sandbox"]']
    for problem, template in itertools.product(("13", "32", "61", "85"), template_names()):
        if template != "baseline":
            text = starter(load_catalogue().find(problem), template)
            (tmp_path / f"kernel_{problem}_{template}.py").write_text(text)
    subprocess.run([*ruff, str(tmp_path)], check=True, stdout=subprocess.DEVNULL)


def test_a_signature_shows_defaults(problem: Problem) -> None:
    assert signature(problem) == "solution(A_local, B_local)"
    problems = [problem for problem in load_catalogue().problems if any(default for _, default in problem.parameters)]
    assert problems
    for problem in problems:
        name, default = next((name, default) for name, default in problem.parameters if default)
        assert f"{name}={default}" in signature(problem)
