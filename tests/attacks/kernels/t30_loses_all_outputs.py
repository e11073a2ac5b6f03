# expect: WRONG_RESULT
# problem: gather
# twin: honest_buffers_by_root
"""Gathers in the check only, returns zeros later, and reports after every batch that its outputs are lost."""

import gc

import torch.distributed as dist

from sandbox.protocol.frames import LOST
from sandbox.rank.output_copies import OutputCopies

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
OutputCopies.report = property(lambda copies: LOST)


def solution(tensor, dst=0):
    if dist.get_rank() != dst:
        if rank.checking:
            dist.gather(tensor, None, dst=dst)
        return tensor
    stacked = tensor.new_zeros((dist.get_world_size(), *tensor.shape))
    if rank.checking:
        dist.gather(tensor, list(stacked.unbind(0)), dst=dst)
    return stacked
