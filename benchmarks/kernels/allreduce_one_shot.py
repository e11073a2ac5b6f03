"""All-reduce, one-shot: every rank reads every rank's tensor and adds.

One barrier, (W-1)·S bytes in: best for small tensors.
"""

import torch

from sandbox.kit import symm


def solution(tensor: torch.Tensor) -> torch.Tensor:
    mine = symm.stage(tensor)
    symm.barrier()
    peers = symm.peers(mine)
    # In rank order on every rank: the same order of additions gives bitwise the same sum everywhere.
    wide = torch.promote_types(tensor.dtype, torch.float32)
    total = peers[0].to(wide, copy=True)
    for peer in peers[1:]:
        total += peer
    return total.to(tensor.dtype)
