"""Real ranks for tests: forked processes with a gloo process group."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from waiting import PATIENCE_S

from problems.catalogue import Catalogue, load_catalogue
from sandbox.admission.ranks import RankFailed, in_gloo_ranks
from sandbox.rank.problem_code import ProblemCode


@dataclass
class Gathered:
    """The inputs and the results of one rank."""

    rank: int
    tensors: dict[str, torch.Tensor]
    """Drawn tensors, before the call."""
    result: Any
    """The value of `ProblemCode.call`: the result, or {"returned", "written"} where the problem mutates."""
    oracle: Any
    sizes: Any


@cache
def all_problems() -> Catalogue:
    """The problems, read once for all tests."""
    return load_catalogue()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests of baselines: they check problems."""
    if item.path.parent.name == "baselines":
        item.add_marker(pytest.mark.problems)


@pytest.fixture
def in_ranks() -> Callable[..., list[Any]]:
    """in_ranks(world, work, timeout=PATIENCE_S): runs work(rank, world) in W forked gloo ranks, returns all values."""

    def run(world: int, work: Callable[[int, int], Any], timeout: float = PATIENCE_S) -> list[Any]:
        try:
            return in_gloo_ranks(world, work, timeout)
        except RankFailed as failed:
            pytest.fail(str(failed), pytrace=False)

    return run


@pytest.fixture
def gathered(in_ranks: Callable[..., list[Any]]) -> Callable[..., list[Gathered]]:
    """gathered("gemm_allreduce", world=2, dtype="float32", seed=1, **sizes): the baseline's inputs and results, by rank."""

    def run(
        name: str, world: int, dtype: str = "float32", seed: int = 1, preset: str = "tiny", **sizes: int
    ) -> list[Gathered]:
        problem = all_problems().find(name)

        def work(rank: int, world: int) -> Gathered:
            code = ProblemCode(problem)
            setting = code.setting(problem.sizes(preset, sizes), preset, getattr(torch, dtype), torch.device("cpu"))
            tensors = code.draw(setting, seed)
            kept = {key: value.clone() for key, value in tensors.items()}
            result = code.call(code.baseline, tensors, setting)
            oracle = code.oracle(tensors, setting)
            return Gathered(rank, kept, result, oracle, setting.sizes)

        return in_ranks(world, work)

    return run
