"""Real ranks for tests: forked processes with a gloo process group."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from problems import gloo
from problems.catalogue import load_catalogue
from sandbox.problem_code import ProblemCode


@dataclass
class Gathered:
    """What one rank was given and what it returned."""

    rank: int
    tensors: dict[str, torch.Tensor]
    """Drawn tensors, before the call."""
    result: Any
    """What `ProblemCode.call` gives: the result, or {"returned", "written"} where the problem mutates."""
    oracle: Any
    sizes: Any


def _child(rank: int, world: int, folder: str, work: Callable[[int, int], Any]) -> None:
    try:
        torch.set_num_threads(1)
        os.sched_setscheduler(
            0, os.SCHED_BATCH, os.sched_param(0)
        )  # as the ranks of a world: see sandbox.launcher
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        gloo.install()
        torch.save(work(rank, world), f"{folder}/rank{rank}.pt")
    except BaseException:
        Path(f"{folder}/rank{rank}.error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


@pytest.fixture
def in_ranks(tmp_path: Path) -> Callable[..., list[Any]]:
    """in_ranks(world, work, timeout=60): runs work(rank, world) in W forked gloo ranks, returns what each gave."""

    def run(world: int, work: Callable[[int, int], Any], timeout: float = 60) -> list[Any]:
        context = multiprocessing.get_context("fork")
        ranks = [context.Process(target=_child, args=(r, world, str(tmp_path), work)) for r in range(world)]
        for process in ranks:
            process.start()
        try:
            for process in ranks:
                process.join(timeout)
        finally:
            late = [r for r, process in enumerate(ranks) if process.is_alive()]
            for process in ranks:
                process.kill()
                process.join()
        failures = sorted(tmp_path.glob("rank*.error"))
        assert not failures, failures[0].read_text()
        assert not late, f"ranks {late} did not finish within {timeout} s"
        found = [torch.load(tmp_path / f"rank{r}.pt", weights_only=False) for r in range(world)]
        for path in tmp_path.iterdir():
            path.unlink()
        return found

    return run


@pytest.fixture
def gathered(in_ranks: Callable[..., list[Any]]) -> Callable[..., list[Gathered]]:
    """gathered("gemm_allreduce", world=2, dtype="float32", seed=1, **sizes): the baseline's inputs and results, by rank."""

    def run(
        name: str, world: int, dtype: str = "float32", seed: int = 1, preset: str = "tiny", **sizes: int
    ) -> list[Gathered]:
        problem = load_catalogue().find(name)

        def work(rank: int, world: int) -> Gathered:
            code = ProblemCode(problem)
            setting = code.setting(
                problem.sizes(preset, sizes), preset, getattr(torch, dtype), torch.device("cpu")
            )
            tensors = code.draw(setting, seed)
            kept = {key: value.clone() for key, value in tensors.items()}
            result = code.call(code.baseline, tensors, setting)
            oracle = code.oracle(tensors, setting)
            return Gathered(rank, kept, result, oracle, setting.sizes)

        return in_ranks(world, work)

    return run
