"""CUDA sources of the kit, compiled for Hopper without a GPU: by NVRTC, and by nvcc if it is installed."""

import ast
import itertools
import os
import re
import shutil
import struct
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sandbox.kit
from arena.machine.facts import visible_gpus
from benchmarks.kit_soak import device_blocks
from problems.catalogue import load_catalogue
from problems.specification import Problem
from sandbox.kit import cuda, errors, templates
from sandbox.kit.compilers import nvrtc, source_files, stamps

KIT = Path(sandbox.kit.__file__).parent
DEVICE_SIGNALS = KIT / "include" / "px_device_signals.cuh"
CUDA_RANKS = KIT.parent / "rank" / "devices" / "cuda"
ARCH = "sm_90a"
OF_TWO = "-DWORLD=2"
"""For sources that need the number of ranks at compile time."""
FLOATS, UNITS = ("bfloat16", "float16", "float32"), ("uint16", "uint32")
BLOCKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("attention", "candidates", "clipping", "experts", "fan_out", "perceptron"), FLOATS),
    **dict.fromkeys(("quantisation", "scattered_gemm", "sharded_adam", "sums"), FLOATS),
    **dict.fromkeys(("columns", "reshard", "rows"), UNITS),
    "fourier": ("uint32", "uint64"),
}
"""The dtypes of the modules of the kit that launch kernels of their own."""
HOUSE = [p for p in load_catalogue().problems if p.house_source and "cuda.lazy(" in p.house_source]
VARIANTS: dict[str, list[dict[str, object]]] = {
    "sharded_adam": [{"WORLD": 8}],
    "fla_kimi_delta_attention_cp_tp": [{"OF_64": groups, "STEPPING": 4} for groups in (2, 1, 4)],
    "fla_gated_deltanet_cp": [{"OF_64": groups, "STEPPING": 4} for groups in (2, 1, 4)],
    "tp_rms_norm": [{"KEPT": 4, "REREAD": 0}, {"KEPT": 8, "REREAD": 1}],
    "gemv_decode": [{"TILES": 1}, {"TILES": 4}],
    "with_convolution": [
        {"TILE": "__shared__ float2 tile[68];", "LENGTH": 64},
        {"TILE": "extern __shared__ float2 tile[];", "LENGTH": 16384},
    ],
    "hyena_conv1d_boundary_exchange": [{"WINDOW": 7}, {"WINDOW": 0}],
    "vocab_parallel_cross_entropy_loss": [{"WARPS": 1}, {"WARPS": 8}],
    "blocked_fp8_dequantize": [{"CODE": "uint8_t", "EACH": 4}, {"CODE": "float", "EACH": 1}],
    "conv2d_boundary_exchange": [{"ROWS": 64, "RUN": 32}],
    "ulysses_attention_e2e": [{"LANES": lanes, "WORDS": words} for lanes, words in ((8, 1), (32, 2), (2, 1))],
    "load_balancing_loss_fn": [{"LANES": lanes, "WORDS": words} for lanes, words in ((1, 1), (8, 1), (32, 2), (32, 4))],
}
"""Words of a source and their values, by block, problem or the name of what `cuda.lazy` returns."""
MAY_SKIP = not os.environ.get("CI") or visible_gpus() > 0
"""False in continuous integration, which installs the compilers. Machines with GPUs have their own."""

EVERY_FUNCTION = "every function of px.cuh"
EVERYTHING = r"""
extern "C" __global__ void everything(Px px, const bf16* x, bf16* y, float* f, f16* h, u32 epoch, u32* counter) {
    extern __shared__ __align__(128) char tile[];
    __shared__ u64 bar;
    px_barrier(px, blockIdx.x, epoch);
    if (threadIdx.x == 0) {
        px_mbarrier_init(&bar, 1);
        px_mbarrier_expect(&bar, 1024);
        px_bulk_load(tile, px_at(px, 1, x), 1024, &bar);
        px_mbarrier_wait(&bar, 0);
        px_bulk_fence();
        px_bulk_store(y, tile, 1024);
        px_bulk_commit();
        px_bulk_wait_read<1>();
        px_bulk_wait_done<0>();
        px_signal(px, 0, 1, epoch);
        px_wait(px, 0, 1, epoch);
    }
    px_copy(y, x, 1000, threadIdx.x, blockDim.x);
    px_st_ll(y, 1, epoch);
    px_st_ll16(y, make_uint2(1, 2), epoch);
    y[0] = from_float<bf16>(to_float(x[0]) + to_float(h[0]) + px_ld_ll(x, epoch) + px_ld_ll16(x, epoch).y);
    h[1] = from_float<f16>(bf16x2_low(bf16x2_from(f[3], 2)) + bf16x2_high(px_ld16(x).x));
    h[2].bits = e4m3x2_from(f[4], f[5]);
    h[3].bits = (u16)f16x2_from_e4m3(h[2].bits);
    px_grid_barrier(counter, 1);
    const u32 turn = px_turn(px, blockIdx.x);
    px_enter(px, blockIdx.x, turn);
    px_turn_barrier(px, blockIdx.x, turn);
    px_move(y, x, 1000, threadIdx.x, blockDim.x);
    float eight[8];
    px_unpack<bf16>(px_ld16(x), eight);
    px_st16(y, px_pack<bf16>(eight));
    f[0] = px_warp_sum(f[1]) + px_block_mass(px_mass(x, 1000, threadIdx.x, blockDim.x)).sum;
    px_stamp(blockIdx.x);
}
"""


def _literals() -> dict[str, str]:
    """The CUDA sources of the kit by name: of examples, blocks, soak, heap, calibration and transfers."""
    found = {EVERY_FUNCTION: EVERYTHING, "device_heap": DEVICE_SIGNALS.read_text()}
    found["recurrence"] = device_blocks.RECURRENCE.replace("STEPPING", "4")
    found |= {name: (CUDA_RANKS / f"{name}.cu").read_text() for name in ("calibration", "transfers")}
    for path in [*KIT.glob("examples/*_cuda.py"), KIT.parents[1] / "benchmarks" / "kit_soak" / "device_blocks.py"]:
        for node in ast.parse(path.read_text()).body:
            value = node.value if isinstance(node, ast.Assign) else None
            value = value.args[0] if isinstance(value, ast.Call) and value.args else value
            if isinstance(value, ast.Constant) and "__global__" in str(value.value):
                found[path.stem] = str(value.value).replace("TYPE", "bf16")
    return found


def _first_here(every: Iterable[Any], first: Any) -> list[Any]:
    """Marks all but `first` as long: `make test` runs one of several similar compilations."""
    return [each if each == first else pytest.param(each, marks=pytest.mark.long) for each in every]


def _main_dtype(problem: Problem) -> str:
    """bfloat16, which has conversions of its own in the sources, or the problem's first dtype."""
    return "bfloat16" if "bfloat16" in problem.dtypes else problem.dtypes[0]


def _compilations() -> Iterator[Any]:
    """Every text of a house kernel in every dtype and variant. All but the first variant of the main dtype are marked long."""
    for problem in HOUSE:
        text = str(problem.house_source)
        for name in re.findall(r"^(\w+) = cuda\.lazy\(", text, re.MULTILINE):
            plain = f"{name}()" in text
            moves = re.search(rf"{name}\((cuda\.unit_of|unit|WORDS)", text)
            dtypes = [None] if plain else UNITS if moves else problem.dtypes
            variants = VARIANTS.get(name) or VARIANTS.get(problem.slug, [{}])
            for dtype, words in itertools.product(dtypes, variants):
                main = (dtype, words) == (dtypes[0] if plain or moves else _main_dtype(problem), variants[0])
                label = "-".join([problem.slug, name, str(dtype), *map(str, words.values())])
                mark = pytest.mark.problems if main else pytest.mark.long
                yield pytest.param(problem, name, dtype, words, id=label, marks=mark)


def _has_nvrtc() -> bool:
    try:
        nvrtc.binding()
    except errors.CompileError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(
    MAY_SKIP and not _has_nvrtc(), reason="NVRTC comes with CuPy: pip install 'pkb-arena[cuda13]'"
)


def _cubin(source: str, *options: str) -> bytes:
    """Compiles for Hopper. NVRTC 13 leaves optimisations out: a quarter of the time; its parts find the same mistakes."""
    quick = ("--Ofast-compile=max",) if nvrtc.binding().getVersion() >= (13, 0) else ()
    return nvrtc.to_cubin(source, ARCH, (*quick, *options))


def _nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def test_every_example_and_template_is_found():
    examples = [path for path in KIT.glob("examples/*_cuda.py") if "__global__" in path.read_text()]
    assert len(_literals()) == 6 + len(examples)


@needs_nvrtc
@pytest.mark.parametrize("name", _literals())
def test_cuda_texts_compile_with_nvrtc(name):
    assert _cubin(_literals()[name], OF_TWO)[:4] == b"\x7fELF"


STAMPS = r"""
extern "C" __global__ void stamped(float* x) {
    if (threadIdx.x == 0) px_stamp(0);
    x[threadIdx.x] = 1;
    if (threadIdx.x == 0) px_stamp(7);
}
extern "C" __global__ void other(float* x) { x[0] = 2; }
"""


@needs_nvrtc
def test_stamps_are_compiled_only_under_profile():
    def cubin(text: str, *options: str) -> bytes:
        return nvrtc.to_cubin(text, ARCH, options)

    ring, bare = b"px_stamp_ring", STAMPS.replace("px_stamp(0)", ";").replace("px_stamp(7)", ";")
    assert ring in cubin(STAMPS, stamps.OPTION)
    assert ring not in cubin(STAMPS)
    assert len(cubin(STAMPS)) == len(cubin(bare)) < len(cubin(STAMPS, stamps.OPTION))
    assert ring in cubin(bare, stamps.OPTION)  # the option is enough: px_stamp( may be in a comment only
    assert ring not in cubin(stamps.CLOCK)
    assert stamps.options(STAMPS) == ()  # this process makes no profile
    assert stamps.taken() == []


@pytest.mark.slow
@pytest.mark.skipif(_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", _first_here(_literals(), EVERY_FUNCTION))
def test_cuda_texts_compile_with_nvcc(name, tmp_path):
    source = tmp_path / "kernel.cu"
    # nvcc has the system's integer types. px.cuh defines them for NVRTC, which has none. Both must agree.
    source.write_text(f"{nvrtc.header()}\n{_literals()[name]}")
    command = [
        str(_nvcc()),
        "-cubin",
        f"-arch={ARCH}",
        "-std=c++17",
        "-diag-suppress=177",
        OF_TWO,
        "-o",
        str(tmp_path / "kernel.cubin"),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr


def test_kernels_of_every_text_have_readable_signatures():
    for name, text in _literals().items():
        functions = cuda.exported(text)
        assert functions, name
        for function in functions.values():
            for parameter in function.parameters:
                assert struct.calcsize("<" + cuda._format(parameter)) == 8


class _Anything:
    """Stands in for a compiled module: it has every kernel, in any launch shape."""

    def __getattr__(self, name: str) -> "_Anything":
        return self

    def __getitem__(self, shape: object) -> "_Anything":
        return self


@pytest.fixture
def cubins(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The cubins that modules executed in the test compile. No cubin is loaded."""
    made: list[bytes] = []

    def compiled(source: str) -> _Anything:
        made.append(_cubin(source))
        assert cuda.exported(source)
        return _Anything()

    monkeypatch.setattr(cuda, "compile", compiled)
    return made


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[pytest.mark.long] if dtype != dtypes[0] else [])
        for name, dtypes in BLOCKS.items()
        for dtype in dtypes
    ],
)
def test_block_of_kit_compiles_in_every_dtype(name, dtype, cubins):
    block = types.ModuleType(name)
    path = KIT / "blocks" / f"{name}.py"
    block.__file__ = str(path)
    exec(path.read_text(), block.__dict__)
    block.kernel_for(getattr(torch, dtype), **VARIANTS.get(name, [{}])[0])
    assert [cubin[:4] for cubin in cubins] == [b"\x7fELF"]


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(("problem", "name", "dtype", "words"), [*_compilations()])
def test_a_house_kernel_compiles_in_every_dtype(problem, name, dtype, words, cubins):
    module = types.ModuleType("kernel")
    exec(problem.house_source, module.__dict__)
    module.__dict__[name](dtype and getattr(torch, dtype), **words)
    assert all(cubin[:4] == b"\x7fELF" for cubin in cubins)
    assert cubins


STANDARD_HEADERS = r"""
#include <cooperative_groups.h>
#include <cuda/atomic>
extern "C" __global__ void count(Px px, u32* counter, int64_t* wide, u32 epoch) {
    cooperative_groups::this_grid().sync();
    cuda::atomic_ref<u32, cuda::thread_scope_system>(*counter).fetch_add(1, cuda::memory_order_release);
    *wide = (int64_t)sizeof(uint64_t);
    px_barrier(px, blockIdx.x, epoch);
}
"""


@needs_nvrtc
@pytest.mark.skipif(
    MAY_SKIP and not nvrtc.include_dirs(), reason="needs the headers of a CUDA toolkit, or of torch's wheels for CUDA"
)
def test_cooperative_groups_and_libcus_atomics_compile_as_promised():
    assert _cubin(STANDARD_HEADERS)[:4] == b"\x7fELF"


@needs_nvrtc
def test_they_compile_with_libcu_where_headers_lack_it(monkeypatch, tmp_path):
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    if not (toolkit / "cooperative_groups.h").is_file():
        pytest.skip("needs the headers of a CUDA toolkit")
    shown = tmp_path / "include"
    shown.mkdir()
    for entry in toolkit.iterdir():
        if entry.name not in ("cccl", "cuda", "nv"):
            (shown / entry.name).symlink_to(entry)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(nvrtc.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    monkeypatch.setattr(nvrtc, "include_dirs", nvrtc.include_dirs.__wrapped__)
    assert nvrtc.include_dirs()[-1].endswith("_cccl/libcudacxx")
    assert _cubin(STANDARD_HEADERS)[:4] == b"\x7fELF"


@needs_nvrtc
def test_error_carries_line_of_python_file():
    located, _ = source_files.with_line_directives(
        r"""
        extern "C" __global__ void wrong(int* x) {
            *x = no_such_name;
        }
        """,
        sys._getframe(),
    )
    with pytest.raises(errors.CompileError) as caught:
        nvrtc.to_cubin(located, ARCH)
    lines = Path(__file__).read_text().splitlines()
    assert caught.value.line is not None
    assert "no_such_name;" in lines[caught.value.line - 1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so():
    with pytest.raises(errors.CompileError, match="needs a CUDA GPU"):
        cuda.compile(EVERYTHING)


def test_a_starter_for_cuda_and_triton_exists():
    assert {"cuda", "triton"} <= set(templates.names())
