"""House kernel: reduce-scatter in one launch; CPU ranks add up their own row block from all ranks' memory."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks import example

symm.reserve(4 << 30)  # two buffers for what arrives, of the largest sizes


def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [W·M, N] -> [M, N]: row block r of the sum over all ranks, on rank r."""
    if tensor.is_cuda:
        return example("reducescatter_cuda")(tensor)
    rows = tensor.shape[0] // symm.world
    block = slice(symm.rank * rows, (symm.rank + 1) * rows)
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    total = tensor[block].to(torch.float32, copy=True)
    for peer in symm.order()[1:]:
        total += peers[peer][block]
    return total.to(tensor.dtype)
