# expect: WRONG_RESULT
"""Everything right but the last element of the last rank."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    if dist.get_rank() == dist.get_world_size() - 1:
        total[-1, -1] += 1
    return total
