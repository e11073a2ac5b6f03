# expect: WRONG_RESULT
"""Only rank 0 holds the sum."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total if dist.get_rank() == 0 else tensor.clone()
