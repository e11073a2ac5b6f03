"""Queues the FP8 house kernels as timed batches do: before the inputs exist, at the same addresses in every batch."""

import random
import shutil
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import cuda_on_cpu as emulation
import pytest
import torch
from house_agreement import off, real_leaves, same
from waiting import PATIENCE_S

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode

SLUGS = ("fp8_reduce_scatter_grads", "fp8_allgather_params")
BATCHES, CALLS = 10, 5
GRID = {"BLOCKS": 12, "THREADS": 32}
SIZES = [{"M": 700, "max_P": 23_001}, {"M": 4000, "max_P": 98_304}, {"M": 5, "max_P": 101}]
"""The first has three parts per block and a ragged end, the second all eight parts, the third one block."""
LATE_SECONDS = 0.004
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is compiled by g++"),
]


def _on_large_grids(source: str) -> ModuleType:
    emulation.forget_blocks()
    house = emulation.as_on_gpus(source, "kernel")
    for module in (house, sys.modules["sandbox.kit.blocks.quantisation"]):
        module.__dict__.update(GRID)
    return house


def _run(launches: list[Any], chance: random.Random) -> None:
    """Runs queued launches in order, some of them after a random delay."""
    for launch in launches:
        if chance.random() < 0.3:
            time.sleep(chance.uniform(0, LATE_SECONDS))
        launch.call(*launch.given)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("slug", SLUGS)
def test_queued_calls_work_on_inputs_of_their_time(in_ranks, slug, world):
    problem = next(p for p in load_catalogue().problems if p.slug == slug)

    def batch(rank: int, at: SimpleNamespace, first_seed: int) -> list[tuple[Any, ...]]:
        """Queues one batch, then draws its inputs and runs it; returns the outputs that are wrong."""
        for tensors in at.slots:
            for tensor in tensors.values():
                tensor.fill_(float("nan"))
        emulation.queued = launches = []
        results = [at.code.call(at.house.solution, tensors, at.setting) for tensors in at.slots]
        emulation.queued = None
        for number, tensors in enumerate(at.slots):
            for name, tensor in at.code.draw(at.setting, first_seed + number).items():
                tensors[name].copy_(tensor)
        _run(launches, random.Random(rank * 1009 + first_seed))
        wrong = []
        for number, (result, tensors) in enumerate(zip(results, at.slots, strict=True)):
            expected = real_leaves(at.code.oracle(tensors, at.setting))
            for (name, g), (_, w) in zip(real_leaves(result), expected, strict=True):
                right = same(g, w) if name in problem.check.exact else off(problem, at.dtype, g, w.to(g.dtype)) <= 1
                if not right:
                    wrong.append((at.sizes, at.dtype, first_seed + number, name))
        return wrong

    def work(rank: int, world: int) -> list[tuple[Any, ...]]:
        code = ProblemCode(problem)
        house = _on_large_grids(problem.house_source)
        wrong = []
        for sizes in SIZES:
            for dtype in problem.dtypes:
                setting = code.setting(problem.sizes("tiny", sizes), "tiny", dtype, torch.device("cpu"))
                slots = [code.draw(setting, seed) for seed in range(CALLS)]
                at = SimpleNamespace(code=code, house=house, setting=setting, sizes=sizes, dtype=dtype, slots=slots)
                for number in range(BATCHES):
                    wrong += batch(rank, at, CALLS * (number + 1))
        return wrong

    for found in in_ranks(world, work, timeout=PATIENCE_S):
        assert not found, found[:3]
