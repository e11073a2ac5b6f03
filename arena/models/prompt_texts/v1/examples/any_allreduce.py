# problem: allreduce
# device: any
"""All-reduce, one-shot: every rank reads all ranks' tensors and adds; one barrier, best for small tensors."""

import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    wide = torch.promote_types(tensor.dtype, torch.float32)
    total = peers[0].to(wide, copy=True)  # in rank order: bitwise the same sum on every rank
    for peer in peers[1:]:
        total += peer
    return total.to(tensor.dtype)
