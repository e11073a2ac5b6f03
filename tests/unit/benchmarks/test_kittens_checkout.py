"""Which kernels of a checkout the kit can compile, tested with stand-ins for ThunderKittens' headers."""

import json
import shutil
from pathlib import Path

import click.testing
import pytest

from benchmarks.kittens_checkout import command
from sandbox.machine import thunderkittens

HEADERS = Path(__file__).parents[2] / "thunderkittens"
KERNELS = {
    "eight.cu": '#include "kittens.cuh"\nstatic constexpr int NUM_DEVICES = 8;\n',
    "multicast.cu": '#include "kittens.cuh"\nvoid f(kittens::barrier_t<2> barrier) { multimem(barrier); }\n',
    "right.cu": '#include "kittens.cuh"\n#define NUM_DEVICES 2\n__global__ void f(kittens::gl<float, 1, 1, -1, 64> x) {}\n',
    "wrong.cu": '#include "kittens.cuh"\n__global__ void f(kittens::no_such_layout x) {}\n',
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch) -> Path:
    """A checkout with the headers and with kernels of its own."""
    root = tmp_path / "checkout"
    shutil.copytree(HEADERS, root)
    monkeypatch.setenv(thunderkittens.VARIABLE, str(root))
    folder = root / "kernels" / "parallel"
    folder.mkdir(parents=True)
    for name, text in KERNELS.items():
        (folder / name).write_text(text)
    return root


@pytest.mark.further
def test_every_kernel_line_says_whether_it_compiles(checkout):
    pytest.importorskip("cupy")
    done = click.testing.CliRunner().invoke(command, [str(checkout), "--json"], catch_exceptions=False)
    rows = {row["name"].rpartition("/")[2]: row["outcome"] for row in json.loads(done.stdout)}
    assert rows["the starter `kittens`, with NVRTC"] == "compiles"
    assert "for 8 GPUs (NUM_DEVICES, its line 2), this world has 2" in rows["eight.cu"]
    assert "which needs NVLS" in rows["multicast.cu"]
    if rows["right.cu"] != "not compiled: no nvcc":
        assert rows["right.cu"] == "compiles"
        assert "no_such_layout" in rows["wrong.cu"]


def test_a_folder_without_headers_is_no_checkout(tmp_path):
    from arena.errors import UsageError

    with pytest.raises(UsageError, match=r"has no include/kittens\.cuh"):
        command.main([str(tmp_path)], standalone_mode=False)
