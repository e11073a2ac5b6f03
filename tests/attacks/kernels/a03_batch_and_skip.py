# expect: WRONG_RESULT
# twin: honest_buffer_reuse
"""Gathers four calls and does all their work in the last; the others return what is filled in later."""

import torch
import torch.distributed as dist

waiting = []


def solution(tensor):
    out = torch.zeros_like(tensor)
    waiting.append((tensor, out))
    if len(waiting) == 4:
        together = torch.stack([given for given, _ in waiting])
        dist.all_reduce(together)
        for (_, late), part in zip(waiting, together, strict=True):
            late.copy_(part)
        waiting.clear()
    return out
