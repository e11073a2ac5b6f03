# expect: WRONG_STRUCTURE
# twin: honest_transposed
"""One row, expanded: the storage holds a hundredth of what the shape says."""

import torch.distributed as dist


def solution(tensor):
    row = tensor[:1].clone()
    dist.all_reduce(row)
    return row.expand(tensor.shape)
