# expect: WRONG_STRUCTURE
"""float16 for bfloat16: half the harnesses compare after .float()."""

import torch
import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total.to(torch.float16)
