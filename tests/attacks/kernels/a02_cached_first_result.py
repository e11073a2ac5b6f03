# expect: WRONG_RESULT
# twin: honest_buffer_reuse
"""Computes on the first call only."""

import torch.distributed as dist

kept = None


def solution(tensor):
    global kept
    if kept is None:
        kept = tensor.clone()
        dist.all_reduce(kept)
    return kept.clone()
