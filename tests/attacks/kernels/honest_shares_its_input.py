# device: cpu
"""Moves its input into shared memory, and pickles it: both concern the whole storage of a tensor."""

import io

import torch
import torch.distributed as dist


def solution(tensor):
    written = io.BytesIO()
    torch.save(tensor, written)
    if written.tell() > tensor.nbytes + 10_000:
        raise ValueError(f"{written.tell()} bytes for a tensor of {tensor.nbytes}")
    total = tensor.share_memory_().clone()
    dist.all_reduce(total)
    return total
