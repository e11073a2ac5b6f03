# expect: WRONG_RESULT
# twin: honest_more_accurate
"""Sends 8 bits instead of 16."""

import torch
import torch.distributed as dist


def solution(tensor):
    scale = tensor.abs().amax().float() / 448
    code = (tensor.float() / scale).to(torch.float8_e4m3fn)
    codes = [torch.empty_like(code) for _ in range(dist.get_world_size())]
    scales = [torch.empty_like(scale) for _ in range(dist.get_world_size())]
    dist.all_gather(codes, code)
    dist.all_gather(scales, scale)
    return sum(c.float() * s for c, s in zip(codes, scales, strict=True)).to(tensor.dtype)
