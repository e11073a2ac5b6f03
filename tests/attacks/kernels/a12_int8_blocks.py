# expect: WRONG_RESULT
# problem: gemm_allreduce
# twin: honest_narrow_messages
"""Sends the product in blocks of 32 integers of 8 bits with a scale each: 9 bits a value instead of 16."""

import torch
import torch.distributed as dist


def solution(a, b):
    product = (a @ b).float()
    blocks = product.view(-1, 32)
    scales = blocks.abs().amax(dim=1, keepdim=True) / 127
    codes = (blocks / scales).round().to(torch.int8)
    world = dist.get_world_size()
    all_codes = [torch.empty_like(codes) for _ in range(world)]
    all_scales = [torch.empty_like(scales) for _ in range(world)]
    dist.all_gather(all_codes, codes)
    dist.all_gather(all_scales, scales)
    total = sum(c.float() * s for c, s in zip(all_codes, all_scales, strict=True))
    return total.view(product.shape).to(a.dtype)
