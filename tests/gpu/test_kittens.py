"""Judges kernels with ThunderKittens tiles, with the headers of a named checkout, else with stand-in headers."""

from pathlib import Path

import pytest
from kittens_faults import FAULTS, fault

from arena.workspace.named_kernels import starter

KERNELS = Path(__file__).with_name("kernels")
pytestmark = [pytest.mark.gpu, pytest.mark.peers]


@pytest.mark.parametrize("shape", [{"M": 64, "N": 64}, {"M": 5, "N": 7}, {"M": 4096, "N": 2048}])
def test_tiles_over_the_peers_memory_add_up(passes, shape):
    passes("1", (KERNELS / "tiles_kittens.py").read_text(), preset="production", **shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_starters_own_all_reduce_passes(judge, passes, dtype):
    text = starter(judge.catalogue.find("1"), "kittens")
    passes("1", text + "\n\ndef solution(tensor):\n    return all_reduce(tensor)\n", rounds=1, dtype=dtype)


@pytest.mark.timeout(300)
def test_a_file_of_the_publications_harness_passes_unchanged(passes):
    passes("1", (KERNELS / "upstream_kittens.py").read_text(), preset="paper", rounds=1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_gets_its_verdict_and_says_why(judge, name):
    verdict, words = FAULTS[name]
    result = judge.run("1", fault(name), name=f"{name}.py")
    assert result.verdict is verdict, result.detail
    assert words in result.detail
    if name == "undefined_tile":
        assert result.failure.line == 8
