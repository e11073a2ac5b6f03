"""NVSHMEM without a GPU: structs match the headers', every source compiles and links, mistakes are named."""

import ast
import ctypes
import importlib
import shutil
import struct
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import sandbox.kit
from sandbox.kit.compilers import nvrtc, source_files
from sandbox.kit.compilers.arguments import exported
from sandbox.kit.errors import BackendError, CompileError
from sandbox.kit.shmem import bindings as nvshmem_library
from sandbox.kit.shmem import link as nvshmem_link
from sandbox.machine import kernel_cache, nvshmem_package

KIT = Path(sandbox.kit.__file__).parent
KERNELS = Path(__file__).parents[2] / "gpu" / "kernels"
TEXTS = [
    *sorted((KIT / "shmem" / "examples").glob("*.py")),
    KIT / "shmem" / "__init__.py",
    *sorted(KERNELS.glob("shmem_*.py")),
]
PACKAGE = nvshmem_package.package()
needs_package = pytest.mark.skipif(PACKAGE is None, reason="the package nvidia-nvshmem-cu13 is not installed")
ARCH = "sm_90a"


@cache
def why_not_linked() -> str:
    """Returns what this machine lacks for linking; empty if nothing."""
    try:
        nvrtc.binding()
        nvshmem_link._binding()
    except CompileError as error:
        return error.message
    if PACKAGE is None:
        return "the package nvidia-nvshmem-cu13 is not installed"
    return "" if nvshmem_package.nvcc() else "nvcc is not installed"


needs_linker = pytest.mark.skipif(bool(why_not_linked()), reason=why_not_linked())


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """link(source): compiles a source as shmem.compile does, and links it with the wrappers that nvcc builds once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PKB_KERNEL_CACHE", str(folder))
        (wrapper,) = nvshmem_package.build_wrappers(kernel_cache.shared(), ["sm_90"])
        built = wrapper.stat().st_mtime_ns
        assert nvshmem_package.build_wrappers(kernel_cache.shared(), ["sm_90"]) == [wrapper]
        assert wrapper.stat().st_mtime_ns == built
        linker = nvshmem_link.Linker(ARCH)

    def linked(source: str) -> bytes:
        given = source_files.SourceText(source, f'#line 1 "kernel"\n{source}', "kernel", True, (), ())
        return linker.to_cubin(linker.behind_header(given).located, ARCH, ())

    return linked


def sources(path: Path) -> list[str]:
    """Returns the CUDA sources in a kernel file, also those in its docstrings."""
    constants = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
    texts = [text for text in constants if isinstance(text, str) and "__global__" in text]
    return [part for text in texts for part in (text.split('"""')[1::2] or [text])]


LAYOUT = """
#include <climits>
#include <cstddef>
#include <cstdint>
#include "device_host/nvshmem_types.h"
#include "device_host_transport/nvshmem_constants.h"
#define IS(what, number) static_assert((what) == (number), #what)
IS((int)NVSHMEM_STATUS_IS_INITIALIZED, {initialised});
IS(sizeof(nvshmemx_uniqueid_t), {identity[0]});
IS(sizeof(nvshmemx_init_attr_t), {attributes[0]});
IS(offsetof(nvshmemx_init_attr_t, args), 16);
IS(sizeof(nvshmemx_init_args_t), {attributes[16]});
IS(offsetof(nvshmemx_init_args_t, uid_args), 24 - 16);
IS(sizeof(nvshmemx_uniqueid_args_t), {attributes[24]});
IS(offsetof(nvshmemx_uniqueid_args_t, version), 0);
"""
COMPARISONS = ["EQ", "NE", "GT", "LE", "LT", "GE"]


@needs_package
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_structs_are_as_the_host_compiler_has_them() -> None:
    text = LAYOUT.format(
        identity=nvshmem_library.IDENTITY,
        attributes=nvshmem_library.ATTRIBUTES,
        initialised=nvshmem_library.INITIALISED,
    )
    for number, name in enumerate(COMPARISONS):
        text += f"IS((int)NVSHMEM_CMP_{name}, {number});\n"
    command = ["g++", "-std=c++17", "-fsyntax-only", "-x", "c++", "-", f"-I{PACKAGE.folder / 'include'}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    other = text.replace("== (number)", "!= (number)")
    assert subprocess.run(command, input=other, capture_output=True, text=True, check=False).returncode != 0


def test_attributes_have_the_versions_that_nvshmem_checks() -> None:
    identity, attributes = map(nvshmem_library.versioned, (nvshmem_library.IDENTITY, nvshmem_library.ATTRIBUTES))
    assert identity.raw == struct.pack("i124x", 0x10080)
    assert attributes.raw == struct.pack("i12xi4xi116x", 0x10090, 0x10080, 0x10018)


@needs_package
def test_library_loads_without_gpu_and_reads_structs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvshmem_package.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    library = nvshmem_library.Library()
    assert not library.is_initialised
    identity, attributes = map(nvshmem_library.versioned, (nvshmem_library.IDENTITY, nvshmem_library.ATTRIBUTES))
    assert library.dll.nvshmemx_get_uniqueid(ctypes.byref(identity)) == 0
    assert any(bytes(identity)[4:])
    assert library.dll.nvshmemx_set_attr_uniqueid_args(1, 2, ctypes.byref(identity), ctypes.byref(attributes)) == 0
    assert struct.unpack_from("Pii", attributes, 32) == (ctypes.addressof(identity), 1, 2)


@needs_package
def test_memory_is_refused_before_nvshmem_ends_the_process() -> None:
    library = nvshmem_library.Library()
    with pytest.raises(BackendError, match="0 are left"):
        library.allocate(1 << 20)
    with pytest.raises(BackendError, match="was freed already"):
        library.free(1 << 20)


@needs_linker
@pytest.mark.parametrize("path", [path for path in TEXTS if sources(path)], ids=lambda path: path.stem)
def test_every_text_compiles_and_links(link, path: Path) -> None:
    for source in sources(path):
        assert all(function.kernel for function in exported(source).values())
        assert link(source)[:4] == b"\x7fELF"


@needs_linker
def test_every_device_function_links(link) -> None:
    calls = []
    for prefix, suffix in (("nvshmem_", ""), ("nvshmemx_", "_warp"), ("nvshmemx_", "_block")):
        for nbi in ("", "_nbi"):
            calls += [f"{prefix}putmem{nbi}{suffix}(a, b, 8, 0);", f"{prefix}getmem{nbi}{suffix}(a, b, 8, 0);"]
            calls.append(f"{prefix}putmem_signal{nbi}{suffix}(a, b, 8, s, 1, NVSHMEM_SIGNAL_ADD, 0);")
        calls += [f"{prefix}barrier_all{suffix}();", f"{prefix}sync_all{suffix}();"]
    calls += [
        "nvshmem_fence();",
        "nvshmem_quiet();",
        "nvshmemx_signal_op(s, 1, NVSHMEM_SIGNAL_SET, nvshmem_n_pes() - 1);",
    ]
    calls.append("s[0] = (u64)nvshmem_ptr(a, nvshmem_my_pe()) + nvshmem_signal_fetch(s);")
    body = "\n".join(calls)
    head = '#include <nvshmem.h>\n#include <nvshmemx.h>\nextern "C" __global__ void all(char* a, char* b, u64* s)'
    assert b"nvshmemi_device_state_d" in link(f"{head} {{\n{body}\n}}\n")


@needs_linker
def test_mistake_keeps_line_and_missing_function_is_named(link) -> None:
    with pytest.raises(CompileError) as wrong:
        link('extern "C" __global__ void f(int* x) {\n  *x = no_such_name;\n}')
    assert (wrong.value.line, "no_such_name" in wrong.value.message) == (2, True)
    with pytest.raises(CompileError, match=r"linking with NVSHMEM failed.*nvshmem_nowhere"):
        link(
            'extern "C" __device__ int nvshmem_nowhere();\nextern "C" __global__ void f(int* x) { *x = nvshmem_nowhere(); }'
        )


@needs_package
def test_without_built_object_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path))
    with pytest.raises(CompileError, match=r"python -m sandbox\.machine\.nvshmem_package") as error:
        nvshmem_link.Linker(ARCH)
    assert "\n" not in error.value.message


def test_without_a_package_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvshmem_package, "package", lambda: None)
    with pytest.raises(nvshmem_package.NoWrapper, match="pip install nvidia-nvshmem"):
        nvshmem_package.build_wrappers(tmp_path, ["sm_90"])
    assert not nvshmem_package.build_missing(tmp_path)
    with pytest.raises(CompileError, match="nvidia-nvshmem"):
        nvshmem_link.Linker(ARCH)
    with pytest.raises(BackendError, match="nvidia-nvshmem"):
        nvshmem_library.Library()


def test_missing_gpu_ranks_are_said_in_one_line() -> None:
    shmem = importlib.import_module("sandbox.kit.shmem")
    for use in (shmem.connect, shmem.library, lambda: shmem.px, lambda: shmem.compile("")):
        with pytest.raises(BackendError, match="GPU ranks") as error:
            use()
        assert "\n" not in str(error.value)
    with pytest.raises(AttributeError, match="shmem has no put"):
        _ = shmem.put
