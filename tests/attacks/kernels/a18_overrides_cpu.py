# expect: WRONG_RESULT
"""An instance whose .cpu() and .detach() would do the work, for a checker that calls them."""

import torch
import torch.distributed as dist


def solution(tensor):
    lazy = torch.zeros_like(tensor)

    def work(*_):
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    lazy.cpu = lazy.detach = lazy.clone = lazy.numpy = work
    return lazy
