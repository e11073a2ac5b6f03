"""All-to-all by pushing: chunk d of this rank goes straight to its place in rank d's output.

One barrier, no staging copy.
"""

import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    result = symm.out(tensor.shape, tensor.dtype)
    chunks = tensor.view(symm.world, tensor.shape[0] // symm.world, *tensor.shape[1:])
    outputs = symm.peers(result.view_as(chunks))
    for peer in symm.order():
        outputs[peer][symm.rank] = chunks[peer]
    symm.barrier()
    return result
