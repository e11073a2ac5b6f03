"""A kernel of several files on GPUs: Triton modules that import one another, and a CUDA file with a header."""

from pathlib import Path

import pytest

from arena.workspace.kernels import read_kernel
from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.gpu

TWO_SHOT = Path(__file__).with_name("folders") / "two_shot"


@pytest.mark.peers
@pytest.mark.parametrize(("preset", "rounds"), [("tiny", 0), ("production", 3)])
def test_two_shot_all_reduce_of_several_files_passes(judge, preset, rounds):
    kernel = read_kernel(TWO_SHOT)
    result = judge.run("1", kernel.text, files=kernel.files, preset=preset, rounds=rounds, dtype="bfloat16")
    assert result.verdict is Verdict.PASS, f"{result.detail}\n{result.failure.text if result.failure else ''}"
