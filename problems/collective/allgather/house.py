"""House kernel: all-gather by stores into the peers' results; CPU ranks copy tensors out of their peers' memory."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks import example

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [M, N] (any shape) -> [W, M, N]: slot s holds rank s's tensor, on every rank."""
    if tensor.is_cuda:
        return example("allgather_push_cuda")(tensor)
    stacked = tensor.new_empty((symm.world, *tensor.shape))
    peers = symm.peers(symm.stage(tensor))
    stacked[symm.rank].copy_(tensor)
    symm.barrier()
    for peer in symm.order()[1:]:
        stacked[peer].copy_(peers[peer])
    return stacked
