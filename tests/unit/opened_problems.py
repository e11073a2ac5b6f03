"""Problems with drawn inputs, in this process and without ranks."""

from types import SimpleNamespace
from typing import Any

import torch

from problems.catalogue import load_catalogue
from problems.setting import RankSetting, SizesRefused
from problems.specification import Problem, WorldRefused
from sandbox.rank.problem_code import ProblemCode

PROBLEMS = load_catalogue().problems
WORLD = 8
"""The largest number of ranks that is tried."""


class NoGroups(dict[str, Any]):
    def __missing__(self, name: str) -> None:
        return None


def opened(
    problem: Problem, dtype: str, seed: int = 12345
) -> tuple[ProblemCode, RankSetting, dict[str, torch.Tensor]] | None:
    """Draws the last rank's inputs in the largest world that the tiny preset allows, without a process group."""
    code = ProblemCode(problem)
    for world in (WORLD, 4, 2, 1):
        try:
            names = problem.names(problem.sizes("tiny"), world, dtype)
            setting = RankSetting(
                rank=world - 1,
                world=world,
                sizes=SimpleNamespace(**names),
                dtype=getattr(torch, dtype),
                device=torch.device("cpu"),
                groups=NoGroups(),
            )
            return code, setting, code.draw(setting, seed)
        except (SizesRefused, WorldRefused):
            continue
    return None
