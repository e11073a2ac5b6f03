"""A problem's code on ranks: its process groups end with it, and whether its calls compute with the same shapes."""

import gc
import os
import sys

import pytest
import torch
import torch.distributed as dist

from problems.catalogue import load_catalogue
from sandbox.rank.baseline_measurement import shapes_of
from sandbox.rank.problem_code import ProblemCode, leave_groups


def test_ending_a_problems_groups_gives_their_descriptors_back(in_ranks):
    def work(rank: int, world: int) -> list[int]:
        problem = load_catalogue().find("ring_attention_pp")
        found = []
        for _ in range(4):
            setting = ProblemCode(problem).setting(problem.sizes("tiny"), "tiny", "float32", torch.device("cpu"))
            assert set(setting.groups) > {"world"}
            for group in setting.groups.values():
                dist.all_reduce(torch.zeros(1), group=group)  # opens connections between its ranks
            opened = len(os.listdir("/proc/self/fd"))
            leave_groups()
            del setting, group  # a reference to a group keeps its connections open
            found.append(opened - len(os.listdir("/proc/self/fd")))
            found.append(len(os.listdir("/proc/self/fd")))
        return found

    for descriptors in in_ranks(4, work):
        assert all(given_back > 0 for given_back in descriptors[::2])
        assert len(set(descriptors[3::2])) == 1


def test_groups_made_by_baseline_end_with_its_problem(in_ranks):
    def work(rank: int, world: int) -> list[int]:
        problem = load_catalogue().find("fsdp_and_tp")
        found = []
        for _ in range(3):
            code = ProblemCode(problem)
            setting = code.setting(problem.sizes("tiny"), "tiny", "float32", torch.device("cpu"))
            code.call(code.baseline, code.draw(setting, 1), setting)
            leave_groups()
            code.forget()
            assert not [name for name in sys.modules if name.endswith("_fsdp_and_tp")]
            del code, setting
            gc.collect()
            found.append(len(os.listdir("/proc/self/fd")))
        return found

    for descriptors in in_ranks(4, work):
        assert descriptors[1] == descriptors[2]


@pytest.mark.parametrize(
    ("slug", "differ"), [("fused_moe_fwd", True), ("fused_moe_fwd_lora", True), ("gemm_allreduce", False)]
)
def test_shapes_differ_where_the_inputs_values_decide_them(in_ranks, slug, differ):
    def work(rank: int, world: int) -> list[bool]:
        problem = load_catalogue().find(slug)
        code = ProblemCode(problem)
        setting = code.setting(problem.sizes("tiny"), "tiny", "bfloat16", torch.device("cpu"))
        first, second, other = (shapes_of(code, code.draw(setting, seed), setting) for seed in (11, 11, 12))
        return [bool(first), "torch._dynamo" in sys.modules, first == second, first != other]

    for products, compiler, repeats, differs in in_ranks(2, work):
        assert products
        assert not compiler  # its import takes seconds, and needs a user name, which a rank does not have
        assert repeats
        assert differs == differ
