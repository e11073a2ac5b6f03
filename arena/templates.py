"""Starter kernels: the smallest file of each kind that is already right."""

from pathlib import Path

import sandbox.kit
from problems.specification import Problem

TEMPLATES = {
    "baseline": "the PyTorch + NCCL baseline itself",
    "torch": "plain torch, peers' memory read directly",
    "cuda": "CUDA C++ through sandbox.kit.cuda",
    "triton": "Triton",
    "cpp": "C++ for CPU ranks through sandbox.kit.cpp",
}
_FOLDER = Path(sandbox.kit.__file__).parent / "templates"


def signature(problem: Problem) -> str:
    """ "def solution(x, alpha=1.0):", as the baseline has it, annotations left out."""
    arguments = ", ".join(
        name if default is None else f"{name}={default}" for name, default in problem.parameters
    )
    return f"def solution({arguments}):"


def starter(problem: Problem, template: str) -> str:
    """The text of a starter kernel for a problem."""
    if template == "baseline":
        return problem.baseline_source
    raise NotImplementedError(_FOLDER)
