"""`shapes_of` finds out whether calls of a baseline compute with other shapes on other inputs."""

import sys

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.rank.baseline_measurement import shapes_of
from sandbox.rank.problem_code import ProblemCode


@pytest.mark.parametrize(
    ("slug", "differ"), [("fused_moe_fwd", True), ("fused_moe_fwd_lora", True), ("gemm_allreduce", False)]
)
def test_shapes_differ_where_the_inputs_values_decide_them(in_ranks, slug, differ):
    def work(rank: int, world: int) -> list[bool]:
        problem = load_catalogue().find(slug)
        code = ProblemCode(problem)
        setting = code.setting(problem.sizes("tiny"), "tiny", torch.bfloat16, torch.device("cpu"))
        first, second, other = (shapes_of(code, code.draw(setting, seed), setting) for seed in (11, 11, 12))
        return [bool(first), "torch._dynamo" in sys.modules, first == second, first != other]

    for products, compiler, repeats, differs in in_ranks(2, work):
        assert products
        assert not compiler  # its import takes seconds, and needs a user name, which a rank does not have
        assert repeats
        assert differs == differ
