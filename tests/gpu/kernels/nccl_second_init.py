"""Rank 0 alone asks for a second device communicator, which is collective."""

import torch

from sandbox.kit import nccl

nccl.devcomm(lsa_barriers=8)
if torch.distributed.get_rank() == 0:
    nccl.devcomm(lsa_barriers=16)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    torch.distributed.all_reduce(tensor)
    return tensor
