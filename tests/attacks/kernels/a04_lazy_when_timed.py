# expect: WRONG_RESULT
# twin: honest_buffer_reuse
"""Right for the first calls, which other harnesses check; junk for those they time."""

import torch.distributed as dist

calls = 0


def solution(tensor):
    global calls
    calls += 1
    total = tensor.clone()
    if calls <= 3:
        dist.all_reduce(total)
    return total
