# problem: allgather
# device: any
"""All-gather by pushing: every rank writes its tensor into every peer's output; one barrier."""

import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    result = symm.out((symm.world, *tensor.shape), tensor.dtype)
    outputs = symm.peers(result)
    for peer in symm.order():
        outputs[peer][symm.rank].copy_(tensor)
    symm.barrier()
    return result
