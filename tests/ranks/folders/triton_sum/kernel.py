"""All-reduce: gathers all parts and adds them with Triton. On CPU ranks Triton's interpreter runs it."""

import os

import torch
import torch.distributed as dist

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from blocks import sum_parts


def solution(tensor):
    parts = torch.empty((dist.get_world_size(), *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    dist.all_gather_into_tensor(parts, tensor.contiguous())
    return sum_parts(parts)
