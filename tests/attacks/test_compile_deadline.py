"""Compiling has its own deadline: a long first call passes if it compiles. If it only takes as long, it times out."""

from sandbox.protocol.verdict import Verdict

SLOW = """
import time
import torch.distributed as dist

from sandbox.kit.compilers import compiling

first = True


def solution(tensor):
    global first
    if first:
        first = False
        {wait}
    total = tensor.clone()
    dist.all_reduce(total)
    return total
"""


def test_what_compiling_takes_does_not_count_against_the_first_call(referee):
    """In the suite, the deadline of the first call is 3 seconds."""
    setting = referee.setting("allreduce")
    waits = "with compiling.shown(): time.sleep(4)"
    result = referee.judge(setting, SLOW.format(wait=waits), rounds=1)
    assert result.verdict is Verdict.PASS, result.detail
    assert result.seconds.compile > 3.5
    late = referee.judge(setting, SLOW.format(wait="time.sleep(4)"), rounds=1)
    assert late.verdict is Verdict.TIMEOUT
    assert late.failure is not None
    assert late.failure.phase == "check"
