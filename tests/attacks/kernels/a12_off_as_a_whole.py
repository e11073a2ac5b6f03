# expect: WRONG_RESULT
"""Every element is off by a little more than rounding, and none by much."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total * 1.0045
