# expect: PASS
# not_faster: yes
# problem: vocab_parallel_cross_entropy_loss
# twin: baseline
"""Empties the logits in timed calls, whose last values nobody compares: the time of their copy was taken off."""

import torch
import torch.distributed as dist

calls = []


@torch.no_grad()
def solution(logits, target, group=None):
    largest = logits.amax(dim=-1)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    column = target - dist.get_rank(group) * logits.shape[-1]
    here = (column >= 0) & (column < logits.shape[-1])
    shifted = logits.sub_(largest[..., None])
    picked = shifted.gather(-1, column.where(here, 0)[..., None])[..., 0].where(here, 0)
    both = torch.stack([shifted.exp().sum(dim=-1), picked])
    dist.all_reduce(both, group=group)
    calls.append(1)
    logits.data = logits if len(calls) < 5 else logits.new_empty(0)
    return both[0].log_().sub_(both[1])
