"""Inputs are drawn anew in every iteration: a kernel could contain an input that is the same in all of them."""

import itertools
from typing import Any

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.admission.ranks import in_gloo_ranks
from sandbox.memory.slots import same_bits
from sandbox.rank.problem_code import ProblemCode

PROBLEMS = load_catalogue().problems
SEEDS = (7, 12, 13, 14, 2021, 4242, 31337, 99991)
"""Many seeds, because scalars such as flags have few values: two draws often give the same one."""
PLAN = {
    (
        "openclip_contrastive_loss",
        "logit_bias",
    ): "a number of the call that saves no work; at others cheats are seen less often",
    ("magi1_cso_async_attention", "k_ranges"): "the sliding window over the token ranges that the sizes give",
    (
        "dinov2_distributed_sinkhorn_knopp",
        "n_masked_patches_tensor",
    ): "how many samples a rank has: the shape of another input",
    ("distributed_sample_sort", "count"): "how many keys a rank has: the shape of another input",
    ("gnn_sparse_embedding_all2all", "count"): "how many rows a rank has: the shape of another input",
}
"""Inputs that may be the same in every iteration, and why."""


def constants(rank: int, world: int) -> dict[str, list[str]]:
    """By problem: the names of the inputs that are equal in all iterations, at `tiny`."""
    found = {}
    for problem in PROBLEMS:
        code = ProblemCode(problem)
        setting = code.setting(problem.sizes("tiny", {}), "tiny", problem.dtypes[0], torch.device("cpu"))
        first, *others = (code.draw(setting, seed) for seed in SEEDS)
        found[problem.slug] = [
            name for name, tensor in first.items() if all(same_bits(tensor, other[name]) for other in others)
        ]
    return found


@pytest.fixture(scope="module")
def alike() -> list[dict[str, list[str]]]:
    """`constants` of every rank of a world of two."""
    found: list[Any] = in_gloo_ranks(2, constants, 120)
    return found


@pytest.mark.problems
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.slug)
def test_no_input_is_the_same_in_every_iteration(problem, alike):
    names = {name for rank in alike for name in rank[problem.slug]}
    assert sorted(name for name in names if (problem.slug, name) not in PLAN) == []


SHARED = {
    "moe_token_preprocess",
    "physicsnemo_distributed_rfft",
    "ring_attention_tp",
    "vocab_parallel_log_prob_topk",
    "vocab_parallel_log_prob_topk_chunked",
    "vocab_parallel_log_prob_topk_chunked_backward",
}
"""Problems whose ranks share inputs, or get parts of them: the inputs of one rank cannot be replaced alone."""


def alone(rank: int, world: int) -> dict[str, list[bool]]:
    """By problem and iteration: whether this rank's inputs change with rank 1's own random numbers."""
    found: dict[str, list[bool]] = {}
    for problem in PROBLEMS:
        code = ProblemCode(problem)
        setting = code.setting(problem.sizes("tiny", {}), "tiny", problem.dtypes[0], torch.device("cpu"))
        found[problem.slug] = []
        for seed in SEEDS:
            before, after = code.draw(setting, seed), code.draw(setting, seed, seed + 1 if rank == 1 else None)
            alike = [
                before[name].shape == after[name].shape and same_bits(before[name], after[name]) for name in before
            ]
            found[problem.slug].append(not all(alike))
    return found


@pytest.mark.problems
def test_inputs_of_one_rank_are_replaceable_alone() -> None:
    other, changed = in_gloo_ranks(2, alone, 120)
    assert not any(itertools.chain(*other.values()))
    assert {slug for slug, found in changed.items() if not any(found)} == SHARED
