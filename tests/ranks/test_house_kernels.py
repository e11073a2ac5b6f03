"""The house's kernels: right in every allowed world and at odd sizes, and passed by the judge."""

import asyncio
import itertools
import json
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from arena.paths import paths_in
from arena.runs.engine import Engine
from arena.runs.judge import Judgement, judge_to_end
from arena.runs.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from problems.specification import Problem
from sandbox.memory.trees import flatten
from sandbox.protocol.verdict import Verdict
from sandbox.rank.problem_code import ProblemCode

HOUSE = [problem for problem in load_catalogue().problems if problem.house_source]
CALLS = 6
"""Enough that buffers which are used in turn come round, that roots change, and that all layouts have their turn."""
ODD = {"M": 5, "N": 7, "K": 3}
ROUNDINGS = {"bfloat16": 0.02, "float16": 0.002, "float32": 1e-5, "float64": 1e-13}
"""The largest relative error, by dtype."""
SENSITIVE = {"importance_sampling_loss": 4}
"""Times as much where results multiply what the run dtype rounds: ratios are exponentials of rounded logits."""
LARGE = {"M": 211, "N": 313, "K": 33}
"""Beyond what is summed in one step, and no multiple of any world."""
SIZES: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "rope_allgather": ({"M": 64, "N": 640, "dim": 22}, {"M": 192, "N": 640}),
    "ulysses_all_to_all_tensor_primitive": (
        {"M": 120, "N": 4},
        {"M": 840, "N": 60},
    ),  # each world divides M, and 4 divides N
    "fused_adam_grad_unshard_allgather": ({"M": 5, "max_p": 101}, {"M": 700, "max_p": 4097}),
    "reducescatter_fused_rmsnorm": ({"M": 5, "N": 47}, {"M": 64, "N": 3001, "max_H": 9000}),
    "load_balancing_loss_fn": (
        {"M": 35, "B": 5, "L": 3, "E": 13, "K": 4},
        {"M": 211, "B": 1, "L": 1, "E": 70, "K": 1},
    ),
    "gemv_decode": ({"M": 77, "N": 201, "min_v": 7}, {"M": 5000, "N": 130, "min_v": 1}),
    "moe_epgroupgemm_lora_backward": ({"N": 5, "R": 3}, {"N": 1001, "R": 7}),
    "vocab_parallel_cross_entropy_loss": ({"B": 3, "S": 5, "V": 840}, {"B": 1, "S": 211, "V": 5040}),
    **dict.fromkeys(
        (
            "vocab_parallel_log_prob_topk",
            "vocab_parallel_log_prob_topk_chunked",
            "vocab_parallel_log_prob_topk_chunked_backward",
        ),
        ({"V": 2520, "K": 3}, {"V": 840, "K": 1000, "max_B": 3}),
    ),
    "distributed_sample_sort": ({"n": 13, "M": 211}, {"n": 2011, "M": 16000}),
    "magi1_tile_parallel_vae_decode": (
        {"B": 2, "C": 2, "T": 3, "H": 5, "Wd": 11, "lh": 4, "lw": 5, "us": 3},
        {"T": 11, "H": 19, "Wd": 40},
    ),
    "sam3_allgather_iou_suppression": ({"n": 5, "H": 13, "V": 23}, {"n": 11, "H": 33, "V": 31}),
    "clip_grad_norm_ep": ({"M": 5, "N": 7, "T": 3}, {"M": 211, "N": 313, "T": 1}),
    "physicsnemo_distributed_rfft": ({"B": 3, "M": 37, "N": 50}, {"B": 2, "M": 211, "N": 313}),
    "physicsnemo_distributed_irfft": (
        {"B": 3, "C": 1, "H": 120, "Wd": 120},
        {"B": 1, "C": 2, "H": 240, "Wd": 840},
    ),
    "tp_muon_orthogonalization": ({"m": 37, "c": 51}, {"m": 200, "c": 120}),
    "openclip_contrastive_loss": ({"M": 37, "N": 50}, {"M": 600, "N": 24}),
    "hyena_conv1d_boundary_exchange": ({"B": 2, "D": 3, "C": 17, "K": 12}, {"B": 1, "D": 7, "C": 40, "K": 5}),
}
"""(odd, large) of problems whose sizes have other names, or rules."""


def worlds_of(problem: Problem) -> Iterator[Any]:
    """Two worlds in every run, one of them odd where that is allowed; all others in the long ones."""
    quick = [world for world in (1, 3, 2) if world in problem.worlds][:2]
    for world in (1, 2, 3, 5, 8):
        if world in problem.worlds:
            marks = [] if world in quick else [pytest.mark.long]
            yield pytest.param(problem, world, marks=marks, id=f"{problem.slug}-{world}")


def test_the_first_eight_problems_and_the_row_parallel_gemm_have_house_kernels():
    assert {problem.id for problem in HOUSE} >= {1, 2, 3, 4, 5, 6, 7, 8, 13}


@pytest.mark.parametrize(("problem", "world"), [case for problem in HOUSE for case in worlds_of(problem)])
def test_it_agrees_with_the_oracle(in_ranks, problem, world):
    def work(rank: int, world: int) -> list[tuple[float, bool]]:
        module = types.ModuleType("kernel")
        exec(problem.house_source, module.__dict__)
        code = ProblemCode(problem)
        found = []
        for sizes, dtype in itertools.product(SIZES.get(problem.slug, (ODD, LARGE)), problem.dtypes):
            asked = {name: value for name, value in sizes.items() if name in problem.presets["tiny"]}
            run_dtype = getattr(torch, dtype)
            setting = code.setting(problem.sizes("tiny", asked), "tiny", run_dtype, torch.device("cpu"))
            limit = SENSITIVE.get(problem.slug, 1) * ROUNDINGS[dtype]
            for seed in range(CALLS):
                tensors = code.draw(setting, seed)
                before = {name: tensor.clone() for name, tensor in tensors.items()}
                got = real_leaves(code.canonical(code.call(module.solution, tensors, setting), setting))
                wanted = real_leaves(code.canonical(code.oracle(tensors, setting), setting))
                untouched = all(same(before[name], tensor) for name, tensor in tensors.items())
                for (_, g), (_, w) in zip(got, wanted, strict=True):
                    exact = "*" in problem.check.exact
                    error = 0.0 if exact and same(g.double(), w.double()) else relative(g, w) / limit
                    found.append((error, untouched and g.shape == w.shape))
        return found

    for figures in in_ranks(world, work, timeout=100):
        assert all(sound for _, sound in figures)
        assert max(error for error, _ in figures) <= (0.0 if "*" in problem.check.exact else 1.0)


def real_leaves(result: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a result by name, complex ones as pairs of real numbers."""
    return [(name, torch.view_as_real(t) if t.is_complex() else t) for name, t in flatten(result)[1]]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(nan=1e30), b.nan_to_num(nan=1e30))


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """The error relative to the norm, beyond half a step of the dtype's subnormal numbers per element. Integers have no steps."""
    steps = 0.0
    if got.is_floating_point():
        limits = torch.finfo(got.dtype)
        steps = limits.smallest_normal * limits.eps / 2 * got.numel() ** 0.5
    difference = torch.where(got == wanted, 0.0, got.double() - wanted.double())  # infinities may be equal
    size = float(wanted.double().nan_to_num(posinf=0.0, neginf=0.0).norm())
    return max(float(difference.norm()) - steps, 0.0) / max(size, 1e-30)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, shared_referee: Any) -> Iterator[Callable[[Problem, int], Judgement]]:
    """judge(problem, rounds): its house kernel, judged on two CPU ranks. One engine: worlds open problem after problem."""
    folder = tmp_path_factory.mktemp("arena")
    engine = Engine(paths_in(folder), command=shared_referee.command)

    async def judged(problem: Problem, rounds: int) -> Judgement:
        setting = choose_setting(problem, Choice(world=2, device="cpu"), Settings())
        source = problem.house_source
        request = RunRequest(
            problem=problem, setting=setting, kernel_name="house.py", source=source, rounds=rounds
        )
        return await judge_to_end(engine, request)

    with asyncio.Runner() as runner:
        yield lambda problem, rounds: runner.run(judged(problem, rounds))
        runner.run(engine.close())


JUDGED = [problem for problem in HOUSE if problem.slug in ("allreduce", "alltoall", "gemm_allreduce")]
"""Judged by every `make test`, with one round; all of them with three rounds by `make test-all`."""


@pytest.mark.slow
@pytest.mark.parametrize("problem", JUDGED, ids=lambda problem: problem.slug)
def test_the_judge_passes_it(judge, problem):
    """That calls follow one another is above, and the judge's steps are the same for all."""
    result = judge(problem, 1).result
    assert result.verdict is Verdict.PASS, result.detail


@pytest.mark.long
@pytest.mark.parametrize("problem", HOUSE, ids=lambda problem: problem.slug)
def test_the_judge_times_it(judge, problem):
    result = judge(problem, 3).result
    assert result.verdict is Verdict.PASS, result.detail


@pytest.mark.long
def test_the_command_line_knows_it_by_the_word_house(pkb_arena):
    done = pkb_arena("run", "13", "house", "--device", "cpu", "--world", "2", "--rounds", "3", "--json")
    assert json.loads(done.stdout)["verdict"] == "PASS", done.stdout
    assert done.returncode == 0
