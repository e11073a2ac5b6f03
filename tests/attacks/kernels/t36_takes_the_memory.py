# expect: OUT_OF_MEMORY | PASS
# device: cuda
# preset: production
"""Takes nearly all of the GPU's memory in its first call, so that the baseline has none and only the harness seems to fail."""

import torch
import torch.distributed as dist

LEFT = 256 << 20
taken = []


def solution(tensor):
    if not taken:
        taken.append(torch.empty(torch.cuda.mem_get_info()[0] - LEFT, dtype=torch.uint8, device="cuda"))
    total = tensor.clone()
    dist.all_reduce(total)
    return total
