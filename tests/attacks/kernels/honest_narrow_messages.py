# problem: gemm_allreduce
"""Multiplies in float32, sends in the run dtype, sums in float32."""

import torch
import torch.distributed as dist


def solution(a, b):
    product = (a.float() @ b.float()).to(a.dtype)
    parts = [torch.empty_like(product) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, product)
    return sum(part.float() for part in parts).to(a.dtype)
