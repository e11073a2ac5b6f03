# problem: load_balancing_loss_fn
# preset: paper
"""The load-balancing loss, in one pass."""

import torch
import torch.distributed as dist


def solution(gate_logits, experts, k=2, mask=None):
    logits = gate_logits if isinstance(gate_logits, torch.Tensor) else torch.cat(tuple(gate_logits))
    probability = torch.softmax(logits, dim=-1)
    chosen = torch.topk(probability, k, dim=-1).indices
    hits = torch.zeros_like(probability, dtype=torch.float32).scatter_(1, chosen, 1.0)
    keep = torch.ones_like(logits[:, :1], dtype=torch.float32)
    if mask is not None:
        keep = mask.reshape(-1, 1).repeat(len(logits) // mask.numel(), 1)
    total = keep.sum()
    loss = experts * ((hits * keep).sum(0) / total * ((probability.float() * keep).sum(0) / total)).sum()
    dist.all_reduce(loss)
    return loss / dist.get_world_size()
