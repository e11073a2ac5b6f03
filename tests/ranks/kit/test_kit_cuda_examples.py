"""Runs the CUDA examples thread by thread on CPU ranks: many calls at odd sizes, compared with the exact result."""

import re
import shutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cuda_on_cpu as emulation
import pytest
import torch
from exact_collectives import check_calls

import sandbox.kit
from sandbox.kit import symm
from sandbox.kit.compilers import gcc
from sandbox.kit.shmem.link import HEADER

KIT = Path(sandbox.kit.__file__).parent
COLLECTIVES = {
    "allreduce_two_shot_cuda": "all_reduce",
    "allreduce_shmem": "all_reduce",
    "allgather_shmem": "all_gather",
    "alltoall_shmem": "all_to_all",
    "allgather_push_cuda": "all_gather",
    "alltoall_push_cuda": "all_to_all",
    "reducescatter_cuda": "reduce_scatter",
}
ONE_SHOT = "allreduce_one_shot_cuda"
TURNS = 5  # more turns than a ring has buffers
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is compiled by g++")

NVSHMEM = r"""
static Px everybody;
extern "C" int px_nvshmem_my_pe() { return everybody.rank; }
extern "C" int px_nvshmem_n_pes() { return everybody.world; }
extern "C" void px_nvshmem_put_signal_block(void* to, const void* from, u64 bytes, u64* signal, u64 value, int op, int pe) {
    if (op != NVSHMEM_SIGNAL_SET || pe < 0 || pe >= everybody.world) __trap();
    px_copy(px_at(everybody, pe, (char*)to), from, bytes, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) __atomic_store_n(px_at(everybody, pe, signal), value, __ATOMIC_RELEASE);
}
"""
"""The NVSHMEM device functions that the kit's own kernels call, on symm's memory."""
KNOW = 'extern "C" __global__ void know(Px px) { everybody = px; }'
FETCH = r"(u64 nvshmem_signal_fetch\(const u64\* signal\)) \{.*?\n\}"
FETCHED = r"\1 { emu_yield(); return __atomic_load_n(signal, __ATOMIC_ACQUIRE); }"


def _over_nvshmem(text: str) -> Any:
    """Stand-in for `shmem.compile`."""
    header, replaced = re.subn(
        FETCH, FETCHED, (gcc.INCLUDE / HEADER).read_text().replace("#pragma once", ""), flags=re.S
    )
    assert replaced == 1
    kernels = emulation.compile(f"{text}\n{KNOW}\n", behind=header + NVSHMEM)
    kernels.know[1, 1](symm.connect().px)
    return kernels


@cache
def _example(name: str) -> ModuleType:
    """An example in small launches of the emulated CUDA."""
    shmem = sys.modules["sandbox.kit.shmem"] = sandbox.kit.shmem = ModuleType("sandbox.kit.shmem")
    shmem.compile = _over_nvshmem
    shmem.__getattr__ = lambda name: getattr(symm, name)
    folder = KIT / "shmem" if name.endswith("_shmem") else KIT
    text = (folder / "examples" / f"{name}.py").read_text()
    return emulation.as_on_gpus(re.sub(r", (256|512)\]", ", 32]", text), name)


def run_collectives(rank: int, world: int) -> None:
    for name, collective in COLLECTIVES.items():
        kernel = _example(name)
        for dtype in (torch.float32, torch.bfloat16):
            for shape in ((world, 1, 1), (world * 3, 5), (world, 64, 33), (world * 8, 128)):
                check_calls(kernel, collective, shape, dtype, rank, world, TURNS)
    check_calls(_example(ONE_SHOT), "all_reduce", (world * 3, 20), torch.bfloat16, rank, world, TURNS)


@pytest.mark.parametrize("world", [3, *(pytest.param(world, marks=pytest.mark.further) for world in (1, 2, 4))])
def test_collective_examples(worlds, world):
    worlds.run(run_collectives, world)


def run_large(rank: int, world: int, blocks: int, rows: int) -> None:
    """Checks sizes at which every block has several parts, and no count divides another."""
    for name, collective in COLLECTIVES.items():
        kernel = _example(name)
        kernel.BLOCKS = blocks
        check_calls(kernel, collective, (world * rows, 2051), torch.bfloat16, rank, world, 2)


@pytest.mark.further
@pytest.mark.parametrize(
    ("blocks", "rows"), [(8, 131), pytest.param(64, 1031, marks=pytest.mark.long, id="the kernels' own")]
)
def test_collective_examples_at_size_that_fills_grid(worlds, blocks, rows):
    worlds.run(run_large, 3, blocks, rows, PKB_SYMM_BYTES=str(256 << 20))


def test_every_cuda_example_is_tested():
    paths = [*KIT.glob("examples/*_cuda.py"), *KIT.glob("shmem/examples/*.py")]
    assert {path.stem for path in paths} == {*COLLECTIVES, ONE_SHOT}
