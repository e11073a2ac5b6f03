"""The extension helper that kernels written for the ParallelKernelBench harness import."""

import sys
from pathlib import Path

import pytest
import torch

import sandbox.kit
from sandbox.kit import errors

COMPAT = str(Path(sandbox.kit.__file__).parent / "compat")
SOURCE = """
torch::Tensor twice(torch::Tensor x) { return x * 2; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""


def build_together(rank: int, world: int) -> None:
    sys.path.append(COMPAT)
    from utils.cuda_helpers import compile_cuda_extension

    extension = compile_cuda_extension("doubler", "", SOURCE)
    assert extension.twice(torch.ones(2)).tolist() == [2.0, 2.0]
    again = compile_cuda_extension("doubler", cpp_sources=[SOURCE])
    assert again.twice(torch.ones(1)).item() == 2.0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_sources_need_the_toolkit_and_say_so(monkeypatch, tmp_path):
    from torch.utils import cpp_extension

    monkeypatch.syspath_prepend(COMPAT)
    monkeypatch.setenv("PKB_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    from utils.cuda_helpers import compile_cuda_extension

    with pytest.raises(errors.CompileError, match="needs nvcc"):
        compile_cuda_extension("kernel", "__global__ void k() {}")


def test_loaded_library_is_found_by_start_of_name(monkeypatch):
    monkeypatch.syspath_prepend(COMPAT)
    from utils.cuda_helpers import _loaded

    assert Path(_loaded("libc.so")).is_file()
    assert _loaded("libnobody-has-this.so") == ""
