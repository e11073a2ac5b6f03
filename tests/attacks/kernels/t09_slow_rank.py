# expect: PASS
# at_least_us: 3500
"""One rank is 4 ms late and hides it from the others: the time is the last rank's."""

import time

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    if dist.get_rank() == 1:
        time.sleep(0.004)
    return total
