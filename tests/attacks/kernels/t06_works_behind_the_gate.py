# expect: BASELINE_DISTURBED | WRONG_RESULT
# twin: honest_async
# device: cuda
"""Has kernels queued on a stream of its own that add up the inputs while the referee still holds the gate shut."""

import torch
import torch.distributed as dist

MILLISECOND = 2_000_000  # in cycles
side = torch.cuda.Stream()
early = {}


def solution(tensor):
    with torch.cuda.stream(side):
        if early.get("calls", 0) % 8 == 0:
            torch.cuda._sleep(10 * MILLISECOND)  # until the inputs are there, and the clock not yet started
        early[tensor.data_ptr()] = tensor * 1
    early["calls"] = early.get("calls", 0) + 1
    total = tensor.clone()
    dist.all_reduce(total)
    return total
