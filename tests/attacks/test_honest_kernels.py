"""Honest twins of the attacks pass. Kernels with plain mistakes get the verdict that names the mistake."""

import pytest

from benchmarks.attacks.attack_bait import printed
from benchmarks.attacks.attack_suite import MOST_TRIES, TWIN
from sandbox.protocol.events import PhaseStarted
from sandbox.protocol.verdict import Verdict
from sandbox.referee.labels import REUSES

pytestmark = pytest.mark.slow
ATTACKS = f"{TWIN[0]}-"


def test_a_kernel_gets_its_verdict(judged, kernel_name):
    judged(kernel_name)


COUNTS_ITS_FAULTS = """
import resource
import torch
import torch.distributed as dist

def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total

def faults(calls):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        dist.all_reduce(torch.zeros(8))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(100)
print(faults(1200), "faults")
"""


def test_new_world_is_as_warm_as_old_ones(referee):
    assert referee.judge(referee.setting("allreduce"), COUNTS_ITS_FAULTS, rounds=0).verdict is Verdict.PASS
    ranks = [line.split() for line in printed(referee.events).splitlines() if line.endswith("faults")]
    assert len(ranks) == 2
    # Otherwise 200 and more, and 300 with torch's record of 2000 collectives.
    assert all(int(faults) < 60 for faults, _ in ranks), ranks


USES_ITS_BUFFER_LATE = """
import gc
import torch.distributed as dist
from sandbox.rank.output_copies import OutputCopies

copies = next(each for each in gc.get_objects() if isinstance(each, OutputCopies))
copies.holds = True  # on CPU ranks, others copy every result at once
buffer = None

def solution(tensor):
    global buffer
    if not copies._defers or buffer is None:  # reuses it in the first such batch: a probe misses outputs that are held
        buffer = tensor.new_empty(dist.get_world_size(), *tensor.shape)
    dist.all_gather_into_tensor(buffer, tensor)
    return buffer
"""


@pytest.mark.further
def test_timing_restarts_where_uncopied_memory_was_reused(referee):
    for _ in range(MOST_TRIES):
        result = referee.judge(referee.setting("allgather"), USES_ITS_BUFFER_LATE, rounds=12)
        if all(batches.calls > 1 for batches in result.samples.call):  # on a busy machine they have one call each
            break
    assert (result.verdict, result.rounds) == (Verdict.PASS, 12), result.failure
    assert REUSES in result.labels
    started = [event.phase for event in referee.events if isinstance(event, PhaseStarted)]
    assert started.count("time") == 2
