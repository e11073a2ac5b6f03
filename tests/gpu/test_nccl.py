"""Kernels with NCCL's device API: examples and starter pass; each fault gets its verdict and affects no other run."""

import ast
from pathlib import Path

import pytest

import sandbox.kit
from problems.catalogue import load_catalogue
from sandbox.kit import templates
from sandbox.machine.backends import named
from sandbox.protocol.verdict import Verdict

KIT = Path(sandbox.kit.__file__).parent
KERNELS = Path(__file__).with_name("kernels")
NCCL = named("nccl")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.peers,
    pytest.mark.skipif(bool(NCCL.availability().advice), reason=NCCL.availability().found),
]
EXAMPLES = {"1": "allreduce_nccl", "2": "allgather_nccl", "8": "alltoall_nccl"}
WRONG, ON_DEVICE = {Verdict.WRONG_RESULT}, {Verdict.DEVICE_ERROR}
FAULTS = {
    "nccl_missing_barrier": (WRONG, ""),
    "nccl_second_init": ({Verdict.TIMEOUT}, "rank 1 did not ask for nccl.devcomm(lsa_barriers=16"),
    "nccl_different_windows": ({Verdict.CRASH}, "ranks ask for different things"),
    "nccl_barrier_index": (ON_DEVICE, ""),
    "nccl_small_window": (ON_DEVICE, ""),
    "nccl_lonely_barrier": (ON_DEVICE, ""),
    "nccl_word_never_sent": (ON_DEVICE, ""),
    "nccl_endless_wait": ({Verdict.TIMEOUT}, ""),
}
"""Verdicts that a kernel with a fault may get, and words of its failure."""


@pytest.mark.parametrize(("preset", "dtype"), [("tiny", "bfloat16"), ("paper", "float32")])
@pytest.mark.parametrize("problem", EXAMPLES)
def test_examples_pass(passes, problem, preset, dtype):
    source = (KIT / "nccl" / "examples" / f"{EXAMPLES[problem]}.py").read_text()
    result = passes(problem, source, dtype=dtype, preset=preset)
    assert NCCL.label in result.labels


def test_the_starter_passes_and_so_does_its_kernel(passes):
    problem = load_catalogue().find("1")
    text = templates.fill("nccl", problem.title, "solution(tensor)", problem.baseline_source)
    assert "dist.all_reduce" in ast.unparse(ast.parse(text))
    passes("1", text)
    passes("1", f"{text}\n\ndef solution(tensor):\n    return all_reduce(tensor)\n")


@pytest.mark.parametrize("name", FAULTS)
def test_fault_gets_its_verdict_and_hurts_nobody_else(judge, name):
    verdicts, words = FAULTS[name]
    result = judge.run("1", (KERNELS / f"{name}.py").read_text(), name=f"{name}.py")
    told = f"{result.detail}\n{result.failure.text if result.failure else ''}"
    assert result.verdict in verdicts, f"{result.verdict}: {told}"
    assert words in told
    assert judge.seconds < 45
    after = judge.honest()
    assert after.verdict is Verdict.PASS, after.detail
