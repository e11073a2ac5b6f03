"""House kernel: all-to-all by stores into the peers' results; CPU ranks copy their chunk out of each peer's memory."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks import example


def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [W, M, N] -> [W, M, N]: slot s on rank r holds chunk r of rank s."""
    if tensor.is_cuda:
        return example("alltoall_push_cuda")(tensor)
    received = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    peers = symm.peers(symm.stage(tensor))
    received[symm.rank].copy_(tensor[symm.rank])
    symm.barrier()
    for peer in symm.order()[1:]:
        received[peer].copy_(peers[peer][symm.rank])
    return received
