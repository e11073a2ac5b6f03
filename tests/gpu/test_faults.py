"""Kernels that cause GPU faults: each gets its verdict in time, and the next run is not affected."""

from pathlib import Path

import pytest

from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.gpu

KERNELS = Path(__file__).with_name("kernels")
FAULTS = {
    "illegal_address": {Verdict.DEVICE_ERROR},
    "endless_kernel": {Verdict.TIMEOUT},
    "lonely_barrier": {Verdict.DEVICE_ERROR, Verdict.TIMEOUT, Verdict.CRASH},
    "one_rank_exits": {Verdict.CRASH},
    "too_much_memory": {Verdict.OUT_OF_MEMORY},
}
PEERS = {"lonely_barrier", "one_rank_exits"}
"""Faults that need several ranks."""
FIRST_CALL_S = 10.0
"""The deadline of the first call in sandbox/worlds/deadlines.py."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.peers if name in PEERS else ()) for name in FAULTS]
)
def test_fault_gets_its_verdict_and_hurts_nobody_else(judge, name):
    result = judge.run("1", (KERNELS / f"{name}.py").read_text(), name=f"{name}.py")
    assert result.verdict in FAULTS[name], f"{result.verdict}: {result.detail}"
    assert result.failure.advice
    # A rank that computes gets the limit twice, as if it tuned variants. A wait for the GPU counts as computing.
    assert result.seconds.check < 2 * FIRST_CALL_S + 3
    assert judge.seconds < 45  # includes the start of a world
    after = judge.honest()
    assert after.verdict is Verdict.PASS, after.detail


def test_an_error_in_cuda_code_names_its_line(judge):
    source = (KERNELS / "does_not_compile.py").read_text()
    result = judge.run("1", source)
    assert result.verdict is Verdict.COMPILE_ERROR, result.detail
    assert result.failure.line is not None
    assert "no_such_name" in source.splitlines()[result.failure.line - 1]
    assert "no_such_name" in result.failure.text
