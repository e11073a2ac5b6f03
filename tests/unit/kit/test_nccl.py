"""NCCL's device API without a GPU: every source compiles, structs match the kit's, mistakes are named."""

import ast
import ctypes
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import sandbox.kit
from sandbox.kit import cuda, nccl
from sandbox.kit.compilers import nvrtc, source_files
from sandbox.kit.compilers.arguments import HANDLES, converter, exported
from sandbox.kit.errors import ArgumentError, BackendError, CompileError
from sandbox.kit.nccl import bindings as nccl_library
from sandbox.kit.nccl import headers as nccl_headers
from sandbox.kit.nccl.bindings import LowLatencyHandle, WindowHead
from sandbox.machine import nccl_package, nvshmem_package

KIT = Path(sandbox.kit.__file__).parent
TEXTS = [
    *sorted((KIT / "nccl" / "examples").glob("*.py")),
    *sorted((Path(__file__).parents[2] / "gpu" / "kernels").glob("nccl_*.py")),
]
HEADERS = nccl_package.nccl_headers()
needs_headers = pytest.mark.skipif(HEADERS is None, reason="no NCCL package with nccl_device.h is installed")


def compiler_missing() -> str:
    """Returns why the installed headers cannot be compiled here; empty if they can."""
    if HEADERS is None:
        return "no NCCL package with nccl_device.h is installed"
    layout = nccl_package.LAYOUTS.get(HEADERS.version)
    if layout is not None and not layout.for_nvrtc:
        return "" if nvshmem_package.nvcc() else "nvcc is not installed"
    try:
        nvrtc.binding()
    except CompileError as error:
        return str(error)
    return ""


def has_nvrtc_layout() -> bool:
    return HEADERS is not None and nccl_package.LAYOUTS[HEADERS.version].for_nvrtc


needs_compiler = pytest.mark.skipif(bool(compiler_missing()), reason=compiler_missing() or "none")


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path / "kernels"))


def sources(path: Path) -> list[str]:
    """Returns the CUDA sources in a kernel file."""
    constants = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
    return [text for text in constants if isinstance(text, str) and "__global__" in text and "{" in text]


def cubin(source: str, *options: str) -> bytes:
    located = source_files.SourceText(source, f'#line 1 "kernel"\n{source}', "kernel", False, (), ())
    given, flags, to_cubin = nccl_headers.compilation(located)
    artefact, functions = cuda.compile_cubin(given, (*flags, *options), "sm_90", to_cubin)
    assert {function.name for function in functions} == set(exported(source))
    return artefact.read_bytes()


@needs_headers
@needs_compiler
@pytest.mark.parametrize("path", [path for path in TEXTS if sources(path)], ids=lambda path: path.stem)
def test_every_text_compiles(path: Path) -> None:
    for source in sources(path):
        assert all(function.kernel for function in exported(source).values())
        assert cubin(source, "-DWORLD=2")[:4] == b"\x7fELF"


@needs_headers
@needs_compiler
def test_mistake_keeps_its_line_and_headers_work_again() -> None:
    assert cubin('#include <nccl_device.h>\n#include <nccl.h>\nextern "C" __global__ void f(ncclDevComm d) {}')
    with pytest.raises(CompileError) as error:
        cubin('extern "C" __global__ void f(ncclDevComm d) {\n  d.no_such_name;\n}')
    assert (error.value.line, "no_such_name" in error.value.message) == (2, True)


GIN = """
extern "C" __global__ void put(ncclDevComm dev, ncclWindow_t sent, ncclWindow_t received, i64 bytes) {
    ncclGin gin(dev, 0);
    const ncclTeam world = ncclTeamWorld(dev);
    for (int peer = threadIdx.x; peer < world.nRanks; peer += blockDim.x)
        gin.put(world, peer, received, world.rank * bytes, sent, peer * bytes, bytes, ncclGin_SignalInc{0});
    gin.waitSignal(ncclCoopCta(), 0, world.nRanks);
    gin.flush(ncclCoopCta());
}
"""


@needs_headers
@pytest.mark.slow
@pytest.mark.skipif(nvshmem_package.nvcc() is None, reason="nvcc is not installed")
def test_a_kernel_with_gin_compiles_by_nvcc() -> None:
    assert cubin(GIN)[:4] == b"\x7fELF"


LAYOUT = """
#include <cstddef>
#include "nccl_device/impl/comm__types.h"
#define IS(what, number) static_assert((what) == (number), #what)
IS(sizeof(ncclDevComm), {devcomm});
IS(offsetof(ncclDevComm, lsaSize), {lsa_size});
IS(sizeof(ncclDevCommRequirements), {requirements});
IS(offsetof(ncclDevCommRequirements, resourceRequirementsList), {resources});
IS(offsetof(ncclDevCommRequirements, lsaBarrierCount), {lsa_barriers});
IS(sizeof(ncclDevResourceRequirements), {resource});
IS(sizeof(ncclLLA2AHandle), {handle});
IS(offsetof(ncclLLA2AHandle, nSlots), {slots});
"""
FIELDS = {
    "winHost": "win_host",
    "lsaFlatBase": "lsa_flat_base",
    "lsaRank": "lsa_rank",
    "worldRank": "world_rank",
    "stride4G": "stride_4g",
    "mcOffset4K": "multicast_offset_4k",
}


@needs_headers
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_structs_are_as_the_host_compiler_has_them(tmp_path: Path) -> None:
    # Stand-ins for the CUDA headers: the device headers take a few names from them.
    shutil.copy(KIT / "include" / "nccl" / "nccl.h", tmp_path)
    (tmp_path / "cuda.h").write_text("typedef enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 } CUmemLocationType;\n")
    layout = nccl_package.LAYOUTS[HEADERS.version]
    numbers = layout._asdict()
    numbers |= {"handle": ctypes.sizeof(LowLatencyHandle), "slots": LowLatencyHandle.slots.offset}
    text = LAYOUT.format(**numbers)
    for theirs, ours in FIELDS.items():
        text += f"IS(offsetof(ncclWindow_vidmem, {theirs}), {getattr(WindowHead, ours).offset});\n"
    command = ["g++", "-std=c++17", "-fsyntax-only", "-x", "c++", "-", f"-I{tmp_path}", f"-I{HEADERS.folder}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    other = text.replace("== (number)", "!= (number)")
    assert subprocess.run(command, input=other, capture_output=True, text=True, check=False).returncode != 0


def test_peers_address_is_stride_of_four_gibibytes_away() -> None:
    head = WindowHead(lsa_flat_base=0x7F0000001000, stride_4g=32)
    assert [head.address(peer) - head.address(0) for peer in range(3)] == [0, 128 << 30, 256 << 30]


def test_an_unknown_version_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    newer = nccl_package.Package(tmp_path, (2, 99, 1))
    monkeypatch.setattr(nccl_package, "nccl_headers", lambda: newer)
    with pytest.raises(CompileError, match=r"2\.99\.1.* it knows .*2\.28\.9") as error:
        nccl_headers.installed()
    assert "\n" not in error.value.message
    monkeypatch.setattr(nccl_package, "nccl_headers", lambda: None)
    with pytest.raises(CompileError, match="doctor"):
        nccl_headers.installed()


@pytest.mark.skipif(not has_nvrtc_layout(), reason="the installed headers, if any, are for nvcc alone")
def test_headers_that_differ_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "include"
    shutil.copytree(HEADERS.folder, folder)
    changed = folder / "nccl_device" / "utility.h"
    changed.write_text(changed.read_text().replace("sizeof(T)/4", "sizeof(T) / 4"))
    with pytest.raises(CompileError, match=r"utility\.h of the installed NCCL is not as the kit knows it"):
        nccl_headers.device_text(nccl_package.Package(folder, HEADERS.version))


def test_kernels_take_ncclS_types_from_what_makes_them() -> None:
    source = 'extern "C" __global__ void f(ncclDevComm_t dev, ncclWindow_t w, ncclLLA2AHandle words, ncclDevComm* p) {}'
    function = exported(source)["f"]
    assert [each.handle for each in function.parameters[:3]] == list(HANDLES)
    assert [each.is_handle for each in function.parameters] == [True, True, True, False]

    made = SimpleNamespace(passed={"ncclWindow": ctypes.c_void_p(7)})
    dev, window = (converter(function.parameters[n], n, function, "cuda") for n in (0, 1))
    assert window(made).value == 7
    with pytest.raises(ArgumentError, match=r"argument 1 \(dev\) of f takes what nccl\.devcomm"):
        dev(made)
    with pytest.raises(ArgumentError, match="got int"):
        window(7)
    with pytest.raises(CompileError, match="cannot be passed"):
        exported('extern "C" __global__ void f(const ncclDevComm& dev) {}')


@needs_headers
def test_headers_of_other_nccl_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HEADERS is not None
    source = 'extern "C" __global__ void f(ncclDevComm dev) {}'
    monkeypatch.setattr(nccl, "library", lambda: SimpleNamespace(version=(2, 27, 3)))
    with pytest.raises(BackendError, match=r"torch has loaded 2\.27\.3"):
        nccl.compile(source)
    monkeypatch.setattr(nccl, "library", lambda: SimpleNamespace(version=HEADERS.version))
    if not torch.cuda.is_available():
        with pytest.raises(CompileError, match="needs a CUDA GPU"):
            nccl.compile(source)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> nccl_library.Library:
    """The library of the installed package; some of its calls work without a GPU."""
    path = HEADERS.folder.parent / "lib" / "libnccl.so.2" if HEADERS is not None else Path()
    if not path.is_file():
        pytest.skip("no NCCL package with its library is installed")
    monkeypatch.setattr(nccl_library, "_LIBRARY", str(path))
    return nccl_library.Library()


def test_library_fills_in_requirements_as_kit_reads_them(library: nccl_library.Library) -> None:
    assert library.version == HEADERS.version
    blocks, slots, handle = 3, 5, LowLatencyHandle()
    resource = ctypes.create_string_buffer(library.layout.resource)
    library._call("ncclLLA2ACreateRequirement", 0, blocks, slots, ctypes.byref(handle), ctypes.byref(resource))
    _, size, _, place = (ctypes.c_uint64.from_buffer(resource, 8 * n).value for n in range(4))
    # A line of state and two sets of slots for each block, 16 bytes each.
    assert (handle.slots, size, place) == (slots, 16 * blocks * (1 + 2 * slots), ctypes.addressof(handle))


def test_call_that_nccl_refuses_raises_in_its_words(library: nccl_library.Library) -> None:
    with pytest.raises(BackendError, match=r"ncclCommWindowRegister: \w+"):
        library.register(0, 0, 4096)
