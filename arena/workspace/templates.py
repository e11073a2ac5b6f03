"""Starter kernels. Each passes before its first edit."""

from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.kit.templates import fill, names
from sandbox.machine.backends import backend_names

GPU_TEMPLATES = ("cuda", "triton", *backend_names())
"""Templates whose kernels run on GPU ranks only."""


def template_names() -> list[str]:
    """Returns the names of the templates: "baseline", "cpp", "symm", "torch"..."""
    return [BASELINE, *names()]


def signature(problem: Problem) -> str:
    """Returns the signature with the baseline's parameters and no annotations: "solution(x, alpha=1.0)"."""
    arguments = (name if default is None else f"{name}={default}" for name, default in problem.parameters)
    return f"solution({', '.join(arguments)})"


def starter(problem: Problem, template: str) -> str:
    """Returns the text of a starter kernel for a problem. template: one of `template_names()`."""
    if template == BASELINE:
        return problem.baseline_source
    return fill(template, f"{problem.id} · {problem.title}", signature(problem), problem.baseline_source)
