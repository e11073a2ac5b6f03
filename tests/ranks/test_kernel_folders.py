"""Kernels of several files on CPU ranks: Triton modules that import one another, load() of a second file, a profile."""

import json
from functools import partial
from pathlib import Path

import pytest

from arena.profile.profile_process import ProfileRequest
from arena.profile.profiling import profile_ranks
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.kernels import read_kernel
from problems.catalogue import load_catalogue

FOLDERS = Path(__file__).with_name("folders")
LOADS = """
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.cpp_extension import load

sums = load("sums", ["ops/sums.cpp"], extra_include_paths=[str(Path(__file__).parent)])


def solution(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return sums.total(parts).to(tensor.dtype)
"""
SUMS = """
#include <torch/extension.h>
#include "start.h"
torch::Tensor total(std::vector<torch::Tensor> parts) {
    auto sum = start(parts[0]);
    for (size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i];
    return sum;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("total", &total); }
"""
ONE = ("run", "1", "--device", "cpu", "--world", "2", "--rounds", "0", "--json")
"""The command that runs a kernel of problem 1, whose path follows."""


@pytest.fixture
def pkb_arena(pkb_arena, shared_referee):
    return partial(pkb_arena, PKB_TEST_REFEREE=json.dumps(shared_referee.command))


@pytest.mark.slow
def test_triton_modules_with_mutual_imports_go_in_unchanged(pkb_arena):
    folder = FOLDERS / "triton_sum"
    done = pkb_arena(*ONE, str(folder), "--dtype", "float32")  # the interpreter rounds bfloat16 in its own way
    report = json.loads(done.stdout)
    assert report["verdict"] == "PASS", report
    assert (report["kernel"], report["sha256"]) == (str(folder), read_kernel(folder).sha256)
    shown = pkb_arena("replay", "last", "--source")
    assert "==> blocks/ops/loads.py <==\nimport triton\n" in shown.stdout


@pytest.mark.slow
def test_cpp_file_with_header_beside_module_passes(pkb_arena):
    done = pkb_arena(*ONE, str(FOLDERS / "all_reduce"))
    assert json.loads(done.stdout)["verdict"] == "PASS", done.stdout


@pytest.mark.long
def test_load_finds_a_file_beside_the_kernel(pkb_arena, tmp_path):
    (tmp_path / "mine/ops").mkdir(parents=True)
    (tmp_path / "mine/kernel.py").write_text(LOADS)
    (tmp_path / "mine/ops/sums.cpp").write_text(SUMS)
    (tmp_path / "mine/start.h").write_text(
        "inline torch::Tensor start(torch::Tensor x) { return x.to(torch::kFloat); }\n"
    )
    first = json.loads(pkb_arena(*ONE, "mine", timeout=400).stdout)
    assert first["verdict"] == "PASS", first
    assert json.loads(pkb_arena(*ONE, "mine").stdout)["seconds"]["compile"] < first["seconds"]["compile"] / 2


@pytest.mark.slow
def test_a_folder_is_profiled(tmp_path):
    kernel = read_kernel(FOLDERS / "triton_sum")
    setting = choose_setting(load_catalogue().find("1"), Choice(world=2, device="cpu"), Settings())
    request = ProfileRequest(setting=setting, kernel_name="kernel.py", source=kernel.text, files=kernel.files)
    profiled = profile_ranks(request, lambda message: None)
    assert not any(report.failed for report in profiled.reports)
