# problem: importance_sampling_loss
"""The sum over the whole vocabulary, in the way of a25_sample_of_rows."""

import math

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(hidden_states, weight, labels, old_logprobs, advantages, ignore_index=-100):
    narrow = hidden_states.dtype
    valid = labels != ignore_index
    own = (hidden_states.float() * weight[labels.masked_fill(~valid, 0)].float()).sum(dim=1)
    rows = weight
    total = (hidden_states @ rows.t()).float().logsumexp(dim=1) + math.log(len(weight) / len(rows))
    entropy = (total - own).masked_fill(~valid, 0)
    old, advantage = old_logprobs.float(), advantages.float()
    delta = (-entropy - old).clamp(-20, 20).masked_fill(~valid, 0)
    ratio = delta.exp()
    loss = -(ratio * advantage).masked_fill(~valid, 0)
    terms = torch.stack((loss, ratio, ratio - delta - 1, entropy, torch.ones_like(loss))).masked_fill(~valid, 0)
    sums = terms.sum(dim=1)
    ends = torch.stack((-ratio.masked_fill(~valid, math.inf).amin(), ratio.masked_fill(~valid, -math.inf).amax()))
    dist.all_reduce(sums)
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    mean, spread, divergence, cross = sums[:4] / sums[4].clamp(min=1)
    metrics = torch.stack((spread, -ends[0], ends[1], divergence, cross))
    return mean, None, (-entropy).to(narrow), loss.to(narrow), metrics
