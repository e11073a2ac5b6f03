# expect: WRONG_RESULT
"""Leaves out the tail that does not fill a whole block."""

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    block = 1000
    whole = total.numel() // block * block
    head = total.view(-1)[:whole].clone()
    dist.all_reduce(head)
    total.view(-1)[:whole] = head
    return total
