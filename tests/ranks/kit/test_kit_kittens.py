"""Kernels that use ParallelKittens, with stand-ins for the headers of ThunderKittens."""

import os
import shutil
import sys
import types
from pathlib import Path

import cuda_on_cpu as emulation
import pytest
import torch
from exact_collectives import drawn

import sandbox.kit
from arena.workspace.named_kernels import starter
from problems.catalogue import load_catalogue
from sandbox.kit import errors, kittens, symm
from sandbox.machine import thunderkittens

COMPAT = str(Path(sandbox.kit.__file__).parent / "compat")
HEADERS = Path(__file__).parents[2] / "thunderkittens"
TILES = Path(__file__).parents[2] / "gpu" / "kernels" / "tiles_kittens.py"
SOURCE = """
#include "pyutils/pyutils.cuh"
std::vector<int64_t> addresses(const kittens::py::TKParallelTensor& tensor) {
    std::vector<int64_t> found;
    for (void* address : tensor.raw_ptrs_) found.push_back(reinterpret_cast<int64_t>(address));
    return found;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    BIND_TK_PARALLEL_TENSOR(m);
    m.def("addresses", &addresses);
}
"""


def share_a_tensor(rank: int, world: int) -> None:
    sys.path.append(COMPAT)
    from utils import parallelkittens_runtime as runtime
    from utils.cuda_helpers import compile_cuda_extension

    ext = compile_cuda_extension("shared", "", SOURCE)
    made = ext.TKParallelTensor([2, 3], torch.float32, local_rank=rank, local_world_size=world)
    assert made.data_.tolist() == [[0.0] * 3] * 2
    made.data_.fill_(rank + 1)
    symm.barrier()
    assert [int(part.sum()) for part in symm.peers(made.data_)] == [6 * (peer + 1) for peer in range(world)]
    assert ext.addresses(made) == symm.ptrs(made.data_)
    assert ext.addresses(ext.TKParallelTensor(made.data_[1:], rank, world)) == symm.ptrs(made.data_[1:])
    with pytest.raises(errors.CompileError, match="multicast=True needs NVLS"):
        ext.TKParallelTensor([2], torch.float32, rank, world, multicast=True)
    with pytest.raises(errors.CompileError, match=r"for 8 GPUs .* this world has 2"):
        ext.TKParallelTensor([2], torch.float32, rank, 8)
    with pytest.raises(errors.SymmetricMemoryError, match="not symmetric memory"):
        ext.TKParallelTensor(torch.zeros(2), rank, world)
    with pytest.raises(errors.CompileError, match="need GPU ranks"):
        runtime.get_or_create_parallel_tensor(ext, (2,), torch.float32, multicast=False)


@pytest.mark.long
@pytest.mark.timeout(550)
def test_extension_has_kits_memory_under_its_tensors(worlds, tmp_path):
    worlds.run(share_a_tensor, 2, timeout_s=500, PKB_KERNEL_CACHE=str(tmp_path), THUNDERKITTENS_ROOT=str(HEADERS))
    assert not list(tmp_path.glob("*.build"))


def ask_for_memory(rank: int, world: int) -> None:
    sys.path.append(COMPAT)
    from utils import parallelkittens_runtime as runtime

    first, addresses = runtime.memory((4,), torch.int32, rank, world, False)
    second, _ = runtime.memory((4,), torch.int32, rank, world, False)
    assert addresses == symm.ptrs(first)
    assert first.data_ptr() != second.data_ptr()
    with pytest.raises(errors.CompileError, match="multicast=True needs NVLS"):
        runtime.memory((4,), torch.int32, rank, world, True)
    with pytest.raises(errors.CompileError, match=r"for 8 GPUs \(num_devices\), this world has 2"):
        runtime.get_or_create_barrier(runtime, num_devices=8)
    with pytest.raises(errors.CompileError, match="need GPU ranks"):
        runtime.get_or_create_barrier(runtime, num_devices=world)
    with pytest.raises(errors.SymmetricMemoryError, match="ranks ask for different buffers"):
        runtime.memory((4 + rank,), torch.int32, rank, world, False)


def test_memory_is_symmetric_heap_and_never_multicast(worlds):
    worlds.run(ask_for_memory, 2, THUNDERKITTENS_ROOT=str(HEADERS))


def ask_alone(rank: int, world: int) -> None:
    sys.path.append(COMPAT)
    from utils import parallelkittens_runtime as runtime

    with pytest.raises(errors.CompileError, match="need peers"):
        runtime.memory((4,), torch.int32, rank, world, False)


def test_a_world_of_one_rank_is_refused(worlds):
    worlds.run(ask_alone, 1, THUNDERKITTENS_ROOT=str(HEADERS))


def import_without_headers(rank: int, world: int) -> None:
    sys.path.append(COMPAT)
    os.environ.pop(thunderkittens.VARIABLE, None)
    with pytest.raises(errors.CompileError, match="THUNDERKITTENS_ROOT names no checkout"):
        import utils.parallelkittens_runtime  # noqa: F401
    from utils.cuda_helpers import compile_cuda_extension

    with pytest.raises(errors.CompileError, match="THUNDERKITTENS_ROOT names no checkout"):
        compile_cuda_extension("none", '#include "kittens.cuh"\n')


def test_without_headers_the_import_says_what_is_missing(worlds):
    worlds.run(import_without_headers, 2)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("static constexpr int NUM_DEVICES = 2;", ""),
        ("#define NUM_DEVICES 2\n", ""),
        ("\nstatic constexpr int NUM_DEVICES = 8;", r"for 8 GPUs \(NUM_DEVICES, its line 2\), this world has 2"),
        ("/* one\n two */\n#define NUM_DEVICES 4\n", r"for 4 GPUs \(NUM_DEVICES, its line 3\)"),
        ("barrier_t<NUM_DEVICES> barrier;", "uses barrier_t with multicast .* needs NVLS"),
        ("multimem<bf16_2>::ld_reduce(x);", "uses multimem with multicast .* needs NVLS"),
        ("using A = pgl<gl<bf16, 1, 1, -1, -1>, NUM_DEVICES>;", "uses pgl with multicast"),
        ("using A = pgl<gl<bf16, 1, 1, -1, -1>,\n NUM_DEVICES, true, tile>;", "uses pgl with multicast"),
        (
            "using A = pgl<gl<bf16, 1, 1, -1, -1>, NUM_DEVICES, false>;\nusing B = pgl<A, config::NUM_DEVICES, false>;",
            "",
        ),
        ("using barrier_t = pgl<gl<int, 1, 1, 2, 2>, 2, false>;\nbarrier_t barrier;", ""),
        ("// multimem and NUM_DEVICES = 8 are not used here", ""),
    ],
)
def test_source_for_other_gpus_or_multicast_is_refused(text, refused):
    if not refused:
        kittens.refuse(text, 2)
        return
    with pytest.raises(errors.CompileError, match=refused):
        kittens.refuse(text, 2)


@pytest.mark.parametrize(
    "line", ['#include "kittens.cuh"', "#  include <pyutils/torchutils.cuh>", '#include "tk/include/kittens.cuh"']
)
def test_an_include_of_thunderkittens_is_found(line):
    assert kittens.are_included(f"// first\n{line}\n")
    assert not kittens.are_included(f"// {line}\n")


def test_link_tree_has_header_of_kit_for_checkouts(tmp_path):
    checkout = tmp_path / "checkout"
    for name in (
        "include/kittens.cuh",
        "include/pyutils/parallel_tensor.cuh",
        "include/pyutils/broker.cuh",
        "prototype/x.cuh",
    ):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("theirs")
    include, prototype = map(Path, kittens.linked(checkout, tmp_path / "tree"))
    assert (include / "kittens.cuh").read_text() == "theirs"
    assert (include / "pyutils" / "broker.cuh").read_text() == "theirs"
    assert "BIND_TK_PARALLEL_TENSOR" in (include / "pyutils" / "parallel_tensor.cuh").read_text()
    assert (prototype / "x.cuh").read_text() == "theirs"


def add_tiles(rank: int, world: int) -> None:
    kittens.compile = lambda source: emulation.compile_kittens(source, HEADERS)  # type: ignore[assignment]
    example, started = types.ModuleType("example"), types.ModuleType("started")
    exec(TILES.read_text(), example.__dict__)
    exec(starter(load_catalogue().find("1"), "kittens"), started.__dict__)
    for dtype, calls in (
        (torch.bfloat16, (example.solution, started.all_reduce)),
        (torch.float32, (started.all_reduce,)),
    ):
        for call in calls:
            for turn, shape in enumerate(((5, 7), (64, 48), (129, 33))):
                everybody = torch.stack([drawn(shape, dtype, source, turn) for source in range(world)])
                got = call(everybody[rank].clone())
                expected = everybody.double().sum(0)
                assert (got.dtype, got.shape) == (dtype, shape)
                error = (got.double() - expected).abs() / (expected.abs() + 1)
                assert error.max() < (2**-8 if dtype is torch.bfloat16 else 1e-6), (call.__module__, dtype, shape)


@pytest.mark.further
@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is compiled by g++")
@pytest.mark.parametrize("world", [2, 3])
def test_tiles_over_peers_add_up_on_emulated_gpus(worlds, world):
    worlds.run(add_tiles, world, THUNDERKITTENS_ROOT=str(HEADERS))
