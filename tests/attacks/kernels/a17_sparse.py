# expect: WRONG_STRUCTURE
# twin: honest_transposed
"""A sparse tensor, to be made dense by whoever compares it."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total.to_sparse()
