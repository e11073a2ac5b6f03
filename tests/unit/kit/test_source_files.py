"""Sources and headers in files beside the kernel: which are found, and which are part of a cache key."""

import sys
from pathlib import Path
from types import FrameType

import pytest

from sandbox.kit.compilers import source_files
from sandbox.kit.errors import CompileError


@pytest.fixture
def frame(tmp_path: Path) -> FrameType:
    """A frame of a Python file in a kernel's folder."""
    for name, text in {
        "kernel.py": "",
        "ops/sum.cu": '#include "tile.cuh"\n#include <cuda_bf16.h>\n',
        "ops/tile.cuh": '#include "deep/more.cuh"\n#include "px.cuh"\n',
        "ops/deep/more.cuh": '#include "../tile.cuh"\nint more;\n',
        "plain.cu": "int plain;\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    names: dict[str, FrameType] = {"sys": sys}  # type: ignore[dict-item]
    exec(compile("frame = sys._getframe()", str(tmp_path / "kernel.py"), "exec"), names)
    return names["frame"]


def test_path_is_looked_up_beside_caller_with_headers(tmp_path: Path, frame: FrameType) -> None:
    found = source_files.read("ops/sum.cu", frame)
    assert (found.text, found.path, found.in_file) == (
        (tmp_path / "ops/sum.cu").read_text(),
        str(tmp_path / "ops/sum.cu"),
        True,
    )
    assert set(found.headers) == {(tmp_path / f"ops/{name}.cuh").read_text() for name in ("tile", "deep/more")}
    assert found.flags == (f"-I{tmp_path}/ops", f"-I{tmp_path}")


def test_source_without_headers_beside_it_gets_no_folder(frame: FrameType) -> None:
    assert source_files.read(Path("plain.cu"), frame).flags == ()
    text = source_files.read('#include "px.cuh"\nint x;\n', frame)
    assert (text.headers, text.flags, text.in_file) == ((), (), False)


def test_a_text_includes_headers_beside_its_python_file(tmp_path: Path, frame: FrameType) -> None:
    found = source_files.read('#include "ops/deep/more.cuh"\nint x;\n', frame)
    assert len(found.headers) == 2
    assert found.flags == (f"-I{tmp_path}",)


def test_file_that_is_not_there_is_compile_error(frame: FrameType) -> None:
    with pytest.raises(CompileError, match=r"there is no file other\.cu beside the kernel"):
        source_files.read("other.cu", frame)


@pytest.mark.parametrize(
    ("source", "path"),
    [("a.cu", True), ("ops/a.cpp", True), ("int x; // a.cu\n", False), ("int x;", False), ("", False)],
)
def test_which_text_is_a_path(source: str, path: bool) -> None:
    assert source_files.is_path(source) is path


@pytest.mark.parametrize(
    ("message", "line"), [("kernel.py:7: wrong", 7), ("<source>:7: wrong", 7), ("tile.cuh:7: wrong", None)]
)
def test_error_in_header_has_no_line_of_kernel(frame: FrameType, message: str, line: int | None) -> None:
    with pytest.raises(CompileError) as caught, source_files.read("int x;\n", frame).readable():
        raise CompileError(message, 7)
    assert caught.value.line == line


def test_text_may_go_on_where_its_file_ends() -> None:
    assert source_files._align(["int a = 1;", "int b;"], ["", "int a = 1;"]) == [2, 3]
    long = ["int a;", "", "int a;", "int b;", "int c;", "int d;", "int a;"]
    assert source_files._align(long[2:5], long) == [3, 4, 5]  # the longest run
    assert source_files._fill_gaps([0, 0, 4, 0, 7, 0]) == [2, 3, 4, 5, 7, 8]
    assert source_files._fill_gaps([0, 0]) == [0, 0]
