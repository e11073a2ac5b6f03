"""Judges the baseline variants: their results must be correct, too."""

import json

import pytest

from arena.workspace.named_kernels import COPY_ENGINE, GRAPH, WINDOWS, has_variant, variant_source
from problems.catalogue import load_catalogue
from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.gpu

REGISTERED = [
    (problem.id, word)
    for problem in load_catalogue().problems
    for word in (WINDOWS, COPY_ENGINE)
    if has_variant(problem, word)
]
WRITES = "30"
"""A problem whose baseline writes to its arguments."""
WAITS = "64"
"""A problem whose baseline waits for the GPU several times."""


@pytest.mark.parametrize(("number", "word"), REGISTERED)
def test_nccl_on_registered_memory_passes(judge, passes, number, word):
    source = variant_source(judge.catalogue.find(str(number)), word, "cuda")
    result = passes(str(number), source, preset="production", rounds=2, M=4096, N=2048)
    assert result.contender_us is not None


@pytest.mark.parametrize("number", ["1", "13", WRITES])
def test_baseline_in_graph_passes_and_has_device_time(judge, passes, number):
    problem = judge.catalogue.find(number)
    result = passes(number, variant_source(problem, GRAPH, "cuda"), preset="paper", rounds=4)
    assert result.contender_us.device is not None


@pytest.mark.parametrize("number", ["76", "87"])
def test_graph_with_large_workspace_keeps_its_results(judge, passes, number):
    problem = judge.catalogue.find(number)
    passes(number, variant_source(problem, GRAPH, "cuda"), preset="production", rounds=4)


def test_baseline_waiting_for_gpu_cannot_be_captured(judge):
    result = judge.run(WAITS, variant_source(judge.catalogue.find(WAITS), GRAPH, "cuda"))
    assert result.verdict is Verdict.CRASH
    assert "cannot be captured in a CUDA graph" in result.detail


def test_a_table_is_printed_and_is_json(judge, run_benchmark):
    world = judge.world
    done = run_benchmark("graphs", "1", "--world", str(world), "--repetitions", "2", "--json")
    (row,) = json.loads(done.stdout)
    assert (row["kernel"], row["verdict"], row["world"], row["rounds"]) == (GRAPH, "PASS", world, 2)
    assert row["kernel_us"]["call"] < row["baseline_us"]["call"] * 1.5
    assert "PASS" in done.stderr  # printed as soon as it is measured
    assert done.returncode == 0
