"""House kernel: all-reduce in one launch; CPU ranks read each other's memory, and add large tensors in shares."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks import example
from sandbox.kit.blocks.sums import ONE_BARRIER, add_up, boxes, summed

SMALL = 1 << 19
"""Bytes that a rank sends, up to which words that carry their own flag are fastest on GPUs."""


def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: the elementwise sum over all ranks, on every rank."""
    if not tensor.is_cuda:
        return summed(symm.stage(tensor), symm.connect())
    team, tensor = symm.connect(), tensor.contiguous()
    sent = (team.world - 1) * tensor.nbytes
    if max(sent, tensor.nbytes) <= SMALL and tensor.dtype is torch.bfloat16 and tensor.numel() % 4 == 0:
        return example("allreduce_one_shot_cuda")(tensor)
    if sent > ONE_BARRIER:
        return example("allreduce_two_shot_cuda")(tensor)
    total = torch.empty_like(tensor)
    add_up(tensor, boxes(tensor.numel(), tensor.dtype, team, on_gpu=True), team, out=total)
    return total
