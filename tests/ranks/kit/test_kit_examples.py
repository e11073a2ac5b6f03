"""Compares every example kernel with the exact result, in many calls at odd sizes."""

import ast
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from exact_collectives import check_calls, check_products

import benchmarks.kernels
from arena.models import conversation
from sandbox.kit import templates

EXAMPLES = Path(benchmarks.kernels.__file__).parent
COLLECTIVES = {"allreduce_two_shot": "all_reduce"}
WORKED = {
    "any_allreduce": "all_reduce",
    "any_allgather": "all_gather",
    "any_reducescatter": "reduce_scatter",
    "cpu_alltoall_cpp": "all_to_all",
}
"""The worked examples of prompts that are plain collectives."""
GEMMS = ["gemm_allreduce", "gemm_allreduce_cpp"]
TURNS = 7  # more turns than a ring has buffers


def kernel_of(name: str) -> ModuleType:
    folder = conversation.EXAMPLES if name in WORKED else EXAMPLES
    spec = util.spec_from_file_location(name, folder / f"{name}.py")
    kernel = util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    return kernel


def run_collectives(rank: int, world: int) -> None:
    for example, collective in (COLLECTIVES | WORKED).items():
        kernel = kernel_of(example)
        for dtype, shape in ((torch.float32, (world * 3, 5)), (torch.bfloat16, (world, 64, 33))):
            check_calls(kernel, collective, shape, dtype, rank, world, TURNS)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_collective_examples(worlds, world):
    worlds.run(run_collectives, world)


def run_gemms(rank: int, world: int) -> None:
    for example in GEMMS:
        kernel = kernel_of(example)
        for dtype, sizes in ((torch.float32, (37, 29, 16)), (torch.bfloat16, (5, 3, 64))):
            check_products(kernel, dtype, sizes, rank, world, TURNS)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_gemm_examples(worlds, world):
    worlds.run(run_gemms, world)


def test_every_example_is_tested():
    names = {path.stem for path in EXAMPLES.glob("[!_]*.py")}
    on_gpus = {name for name in names if name.endswith(("_symm", "_triton"))}  # tests/gpu/ runs these
    assert names - on_gpus == set(COLLECTIVES) | set(GEMMS)


BASELINE = '''"""An average."""

from __future__ import annotations

import torch
import torch.distributed as dist


def solution(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x
'''
ON_CPU = ["cpp", "symm", "torch"]


@pytest.mark.parametrize("name", templates.names())
def test_a_starter_is_complete_python(name):
    text = templates.fill(name, "99 · Average", "solution(x)", BASELINE)
    tree = ast.parse(text)
    assert "99 · Average" in (ast.get_docstring(tree) or "")
    assert "solution(x)" in (ast.get_docstring(tree) or "")
    assert not [word for word in ("__PROBLEM__", "__SIGNATURE__", "__BASELINE__", "__future__") if word in text]
    assert next(node.name for node in tree.body if isinstance(node, ast.FunctionDef)) == "solution"


def test_there_is_starter_for_every_way_on_cpu():
    assert set(ON_CPU) <= set(templates.names())


def run_blocks(rank: int, world: int, texts: dict[str, str]) -> None:
    for name, path in texts.items():
        names: dict = {"__name__": "kernel"}
        exec(compile(Path(path).read_text(), path, "exec"), names)
        assert names["solution"](torch.full((3,), 1.0 + rank)).tolist() == [world * (world + 1) / 2] * 3
        x = torch.arange(world * 6).view(world * 2, 3).to(torch.bfloat16) + rank
        if name in ("symm", "cpp"):
            for turn in reversed(range(TURNS)):
                expected = x + turn
                dist.all_reduce(expected)
                assert torch.equal(names["all_reduce"](x + turn), expected)
        if name == "symm":
            every = torch.empty((world, *x.shape), dtype=x.dtype)
            dist.all_gather_into_tensor(every.view(-1, 3), x)
            assert torch.equal(names["all_gather"](x), every)
            assert torch.equal(names["reduce_scatter"](x), expected.chunk(world)[rank])
            assert torch.equal(names["all_to_all"](x), torch.cat([part.chunk(world)[rank] for part in every]))


@pytest.mark.parametrize("world", [1, 3])
def test_starters_run_and_their_blocks_are_right(worlds, tmp_path, world):
    paths = {}
    for name in ON_CPU:
        paths[name] = str(tmp_path / f"{name}.py")
        Path(paths[name]).write_text(templates.fill(name, "99 · Average", "solution(x)", BASELINE))
    worlds.run(run_blocks, world, paths)
