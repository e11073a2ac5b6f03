"""Kernels with ThunderKittens tiles, compiled for Hopper without a GPU, with stand-in headers."""

import os
from pathlib import Path

import pytest
from kittens_faults import FAULTS, FOLDER, HEADERS, NEED_NVRTC

from arena.machine.facts import visible_gpus
from arena.workspace.named_kernels import starter
from problems.catalogue import load_catalogue
from sandbox.kit import cuda, errors
from sandbox.kit.compilers import nvrtc
from sandbox.machine import thunderkittens

TILES = FOLDER.with_name("tiles_kittens.py")
MAY_SKIP = not os.environ.get("CI") or visible_gpus() > 0


@pytest.fixture(autouse=True)
def compiling(monkeypatch, tmp_path: Path) -> None:
    """Names the stand-in headers as the checkout. Modules are compiled but not loaded."""
    if MAY_SKIP:
        pytest.importorskip("cupy")
        if not nvrtc.include_dirs():
            pytest.skip("needs the headers of a CUDA toolkit, or of torch's wheels for CUDA")

    def compile_only(given, options=(), arch=None, to_cubin=nvrtc.to_cubin):
        cubin, _ = cuda.compile_cubin(given, options, "sm_90a", to_cubin)
        assert cubin.read_bytes()[:4] == b"\x7fELF"

    monkeypatch.setenv(thunderkittens.VARIABLE, str(HEADERS))
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setattr(cuda, "load", compile_only)


def execute(text: str, path: Path) -> None:
    exec(compile(text, str(path), "exec"), {"__name__": "kernel"})


def test_the_example_and_the_starter_compile(tmp_path):
    execute(TILES.read_text(), TILES)
    execute(starter(load_catalogue().find("1"), "kittens"), tmp_path / "kernel.py")
    assert len(list(tmp_path.rglob("*.cubin"))) == 2


@pytest.mark.parametrize("name", sorted(NEED_NVRTC))
def test_a_fault_that_the_compiler_finds_is_told(name):
    path = FOLDER / f"{name}.py"
    with pytest.raises(errors.CompileError) as caught:
        execute(path.read_text(), path)
    assert FAULTS[name][1] in caught.value.message
    line = caught.value.line
    assert (line and "no_such_width" in path.read_text().splitlines()[line - 1]) or (name, line) == (
        "wrong_elements",
        None,
    )


def test_changed_headers_are_compiled_anew(monkeypatch, tmp_path):
    other = tmp_path / "checkout"
    for folder in thunderkittens.FOLDERS:
        (other / folder).mkdir(parents=True)
        for header in (HEADERS / folder).glob("*.cuh"):
            (other / folder / header.name).write_text(header.read_text())
    monkeypatch.setenv(thunderkittens.VARIABLE, str(other))
    execute(TILES.read_text(), TILES)
    with (other / thunderkittens.HEADER).open("a") as header:
        header.write("// changed\n")
    thunderkittens.fingerprint.cache_clear()
    execute(TILES.read_text(), TILES)
    assert len(list(tmp_path.rglob("*.cubin"))) == 2
