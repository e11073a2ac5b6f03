"""Verdicts on faulty ThunderKittens kernels whose faults also show on CPU ranks.

The imports are inside a condition: a kernel that always imports a backend fails on CPU ranks before it starts.
"""

import textwrap

import pytest
from kittens_faults import FAULTS, HEADERS, NEED_NVRTC, fault

from sandbox.machine import thunderkittens
from sandbox.protocol.verdict import Verdict


def hidden(text: str) -> str:
    return "if True:\n" + textwrap.indent(text, "    ")


@pytest.mark.slow
@pytest.mark.further
def test_a_fault_gets_its_verdict_and_says_why(another_referee):
    referee = another_referee(**{thunderkittens.VARIABLE: str(HEADERS)})
    for name in sorted(FAULTS.keys() - NEED_NVRTC):
        verdict, words = FAULTS[name]
        result = referee.judge(referee.setting("allreduce"), hidden(fault(name)), rounds=0)
        assert (name, result.verdict) == (name, verdict), result.detail
        assert words in result.detail


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NEED_NVRTC))
def test_without_a_checkout_the_verdict_says_so(referee, name):
    result = referee.judge(referee.setting("allreduce"), hidden(fault(name)), rounds=0)
    assert result.verdict is Verdict.COMPILE_ERROR
    assert "THUNDERKITTENS_ROOT names no checkout" in result.detail


@pytest.mark.parametrize("name", FAULTS)
def test_kittens_kernel_fails_early_on_cpu_ranks(referee, name):
    result = referee.judge(referee.setting("allreduce"), fault(name))
    assert result.verdict is Verdict.LOAD_ERROR
    assert "kernels over ThunderKittens need GPUs, and this run is on CPU ranks" in result.detail
