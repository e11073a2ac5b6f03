"""All-reduce, two-shot: each rank adds up one slice and puts the sum into every rank's output.

Two barriers, 2·S·(W-1)/W bytes each way: best for large tensors.
"""

import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    flat = symm.stage(tensor.reshape(-1))
    result = symm.out(tensor.shape, tensor.dtype, ring=2)  # two barriers a call: two are enough
    symm.barrier()  # every rank's input is in place
    share = -(-flat.numel() // symm.world)
    slice_of_mine = slice(symm.rank * share, (symm.rank + 1) * share)  # may be short or empty at the end
    inputs = symm.peers(flat)
    wide = torch.promote_types(tensor.dtype, torch.float32)
    total = inputs[0][slice_of_mine].to(wide, copy=True)
    for peer in inputs[1:]:
        total += peer[slice_of_mine]
    rounded = total.to(tensor.dtype)
    outputs = symm.peers(result)
    for rank in symm.order():
        outputs[rank].reshape(-1)[slice_of_mine] = rounded
    symm.barrier()  # every rank's slice has arrived
    return result
