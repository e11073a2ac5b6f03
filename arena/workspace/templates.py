"""Starter kernels. Each passes before its first edit."""

from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.kit.templates import fill, names


def template_names() -> list[str]:
    """The templates by name: "baseline", "cpp", "symm", "torch"..."""
    return [BASELINE, *names()]


def signature(problem: Problem) -> str:
    """ "solution(x, alpha=1.0)" with the baseline's parameters, annotations left out."""
    arguments = (name if default is None else f"{name}={default}" for name, default in problem.parameters)
    return f"solution({', '.join(arguments)})"


def starter(problem: Problem, template: str) -> str:
    """The text of a starter kernel for a problem; `template` is one of `template_names()`."""
    if template == BASELINE:
        return problem.baseline_source
    return fill(template, f"{problem.id} · {problem.title}", signature(problem), problem.baseline_source)
