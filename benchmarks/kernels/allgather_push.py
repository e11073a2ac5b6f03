"""All-gather by pushing: each rank writes its tensor into its place of every rank's output.

One barrier, no staging copy.
"""

import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    result = symm.out((symm.world, *tensor.shape), tensor.dtype)
    outputs = symm.peers(result)
    for peer in symm.order():
        outputs[peer][symm.rank] = tensor
    symm.barrier()
    return result
