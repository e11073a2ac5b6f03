"""The house's kernels: right in every allowed world and at odd sizes, and passed by the judge."""

import json
import types

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.problem_code import ProblemCode
from sandbox.trees import flatten

HOUSE = [problem for problem in load_catalogue().problems if problem.house_source]
CALLS = 4
"""Enough that buffers which are used in turn come round, and that roots change."""
ODD = {"M": 5, "N": 7, "K": 3}
LARGE = {"M": 211, "N": 313, "K": 33}
"""Beyond what is summed in one step, and no multiple of any world."""


def test_the_first_eight_problems_and_the_row_parallel_gemm_have_house_kernels():
    assert {problem.id for problem in HOUSE} >= {1, 2, 3, 4, 5, 6, 7, 8, 13}


@pytest.mark.parametrize("problem", HOUSE, ids=lambda problem: problem.slug)
@pytest.mark.parametrize(
    "world", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def test_it_agrees_with_the_oracle(in_ranks, problem, world):
    def work(rank: int, world: int) -> list[tuple[float, bool]]:
        module = types.ModuleType("kernel")
        exec(problem.house_source, module.__dict__)
        code = ProblemCode(problem)
        found = []
        for sizes in (ODD, LARGE):
            asked = {name: value for name, value in sizes.items() if name in problem.presets["tiny"]}
            setting = code.setting(problem.sizes("tiny", asked), "tiny", torch.bfloat16, torch.device("cpu"))
            for seed in range(CALLS):
                tensors = code.draw(setting, seed)
                before = {name: tensor.clone() for name, tensor in tensors.items()}
                _, got = flatten(code.call(module.solution, tensors, setting))
                _, wanted = flatten(code.oracle(tensors, setting))
                untouched = all(same(before[name], tensor) for name, tensor in tensors.items())
                for (_, g), (_, w) in zip(got, wanted, strict=True):
                    exact = "*" in problem.check.exact
                    error = 0.0 if exact and same(g.double(), w.double()) else relative(g, w)
                    found.append((error, untouched and g.shape == w.shape))
        return found

    for figures in in_ranks(world, work, timeout=100):
        assert all(sound for _, sound in figures)
        limit = 0.0 if "*" in problem.check.exact else 0.02
        assert max(error for error, _ in figures) <= limit


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(nan=1e30), b.nan_to_num(nan=1e30))


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.slow
@pytest.mark.parametrize("problem", HOUSE, ids=lambda problem: problem.slug)
def test_the_judge_passes_it(pkb_arena, problem):
    done = pkb_arena(
        "run", problem.slug, "house", "--device", "cpu", "--world", "2", "--rounds", "3", "--json"
    )
    assert json.loads(done.stdout)["verdict"] == "PASS", done.stdout
    assert done.returncode == 0
