"""Every Triton source of the repository, compiled for Hopper without a GPU."""

import os
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sandbox
from arena.machine.facts import visible_gpus
from arena.workspace.named_kernels import starter
from problems.catalogue import load_catalogue

ROOT = Path(sandbox.__path__[0]).parent
STARTER = "sandbox/kit/templates/triton.py"
UPSTREAM = "tests/gpu/kernels/upstream_triton.py"
OVER_NVSHMEM = "tests/gpu/kernels/shmem_triton.py"
"""Not compiled here, because it is linked with NVSHMEM's own code: tests/gpu/test_shmem.py runs it."""
MAY_SKIP = not os.environ.get("CI") or visible_gpus() > 0
"""False in continuous integration, which installs Triton. Machines with GPUs have their own."""

MATMUL = "benchmarks/kernels/matmul_reducescatter_triton.py"
GRADIENTS = "sandbox/kit/blocks/attention_gradients.py"
_MATRICES = dict.fromkeys(("grad", "q", "k", "v"), "*bf16") | {"lse": "*fp32", "delta": "*fp32"}
_STRIDES = ("batch_stride", "row_stride", "head_stride")
_NUMBERS = {"scale": "fp32", **dict.fromkeys(("causal", "rows", "heads", "width", *_STRIDES), "i32")}

KERNELS: list[tuple[str, str, dict[str, str], dict[str, int]]] = [
    (STARTER, "add_all", {"addresses": "*i64", "out": "*bf16", "n": "i32"}, {"WORLD": 4, "BLOCK": 1024}),
    (UPSTREAM, "one_shot_kernel", {"pointers": "i64", "out": "*bf16", "n": "i32"}, {"WORLD": 4, "BLOCK": 1024}),
    (
        MATMUL,
        "product",
        {"a": "*bf16", "b": "*bf16", "peers": "i64"} | dict.fromkeys(("N", "K", "rows", "rank"), "i32"),
        {"WORLD": 2, "BM": 128, "BN": 256, "BK": 64},
    ),
    (
        GRADIENTS,
        "gradients_of_queries",
        _MATRICES
        | {"out": "*bf16", "dq": "*bf16"}
        | _NUMBERS
        | dict.fromkeys(("dq_batch", "dq_row", "dq_head"), "i32"),
        {"ROWS": 128, "STEP": 64, "WIDTH": 128},
    ),
    (
        GRADIENTS,
        "gradients_of_keys",
        _MATRICES | {"dk": "*bf16", "dv": "*bf16"} | _NUMBERS | dict.fromkeys(("dk_batch", "dk_row", "dk_head"), "i32"),
        {"KEYS": 64, "STEP": 32, "WIDTH": 256},
    ),
]
"""(file, kernel, types of the arguments that its calls pass, its constants)."""

LARGE = {"product", "gradients_of_queries", "gradients_of_keys"}
"""Kernels whose calls ask for 8 warps."""

needs_triton = pytest.mark.skipif(
    MAY_SKIP and find_spec("triton") is None, reason="Triton is not installed: pip install triton"
)


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # a kernel sets it for its process


def _text(path: str) -> str:
    return starter(load_catalogue().find("1"), "triton") if path == STARTER else (ROOT / path).read_text()


def _module(path: Path) -> ModuleType:
    spec = spec_from_file_location("a_triton_kernel", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compiled(text: str, kernel: str, types: dict[str, str], constants: dict[str, int], file: Path) -> Any:
    """A kernel as compiled by Triton, which reads the kernel's source from a file."""
    import triton
    from triton.backends.compiler import GPUTarget

    file.write_text(text)
    function = getattr(_module(file), kernel)
    named = types | dict.fromkeys(constants, "constexpr")
    signature = {name: named[name] for name in function.arg_names}
    source = triton.compiler.ASTSource(function, signature, constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8 if kernel in LARGE else 4})


def test_every_triton_text_is_here():
    folders = [ROOT / name for name in ("arena", "benchmarks", "problems", "sandbox", "screens", "tests")]
    # Files of a kernel folder import each other and compile only there. They have their own tests.
    files = [path for folder in folders for path in folder.rglob("*.py") if "folders" not in path.parts]
    found = {str(path.relative_to(ROOT)) for path in files if "\n@triton.jit\n" in path.read_text()}
    assert found == {path for path, *_ in KERNELS} | {OVER_NVSHMEM}


@needs_triton
@pytest.mark.parametrize(
    ("path", "kernel", "types", "constants"),
    [pytest.param(*each, id=each[1], marks=[pytest.mark.further] * (each[1] in LARGE)) for each in KERNELS],
)
def test_a_triton_text_compiles(path, kernel, types, constants, tmp_path):
    made = _compiled(_text(path), kernel, types, constants, tmp_path / "kernel.py")
    assert made.asm["cubin"][:4] == b"\x7fELF"
    assert ".target sm_90" in made.asm["ptx"]


@needs_triton
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("mask=inside)", "mask=no_such_name)"), ("tl.float32)", "tl.int7)"), ("tl.store(out", "tl.store(n")],
)
def test_a_broken_triton_text_does_not(right, wrong, tmp_path):
    from triton.compiler.errors import CompilationError

    text = _text(STARTER)
    assert right in text
    with pytest.raises(CompilationError):
        _compiled(text.replace(right, wrong), *KERNELS[0][1:], tmp_path / "kernel.py")
