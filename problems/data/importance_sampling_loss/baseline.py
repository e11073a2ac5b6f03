"""Importance-sampling loss: LM head and log-probabilities, ratios, and one exchange of sums, one of extremes."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

CLAMP = 20.0


@torch.no_grad()
def solution(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, torch.Tensor]:
    """hidden_states [.., N], weight [V, N], labels int64, old_logprobs and advantages with as many elements as tokens.

    Returns (loss, None, log-probabilities shaped as labels, per-token loss shaped as labels, metrics). loss is a 0-dim
    float32; metrics are float32 [5]: mean ratio, smallest and largest ratio, k3 estimate of the KL divergence, cross-entropy;
    all over the valid tokens of all ranks.
    """
    narrow, wide = hidden_states.dtype, torch.promote_types(hidden_states.dtype, torch.float32)
    target, valid = labels.reshape(-1), labels.reshape(-1) != ignore_index
    old, advantage = old_logprobs.reshape(-1), advantages.reshape(-1)
    logits = F.linear(hidden_states.reshape(-1, hidden_states.shape[-1]), weight)
    entropy = F.cross_entropy(logits, target, reduction="none", ignore_index=ignore_index)
    logprobs = -entropy
    delta = (logprobs - old).clamp(-CLAMP, CLAMP).masked_fill(~valid, 0)
    ratio = delta.exp()
    token_loss = -(ratio * advantage).masked_fill(~valid, 0)

    def local_sum(values: torch.Tensor) -> torch.Tensor:
        return values.masked_fill(~valid, 0).sum(dtype=wide)

    sums = torch.stack(
        [local_sum(values) for values in (token_loss, ratio, ratio - delta - 1, entropy)] + [valid.sum().to(wide)]
    )
    sums[:4] = sums[:4].to(narrow).to(wide)
    extremes = torch.stack([-ratio.masked_fill(~valid, torch.inf).amin(), ratio.masked_fill(~valid, -torch.inf).amax()])
    surrogate_sum = local_sum(ratio * advantage * entropy).to(narrow).to(wide)
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    sums[:4] = sums[:4].to(narrow).to(wide)
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
    count = sums[4].clamp(min=1)
    surrogate = surrogate_sum / count
    loss = (sums[0] / count + surrogate) - surrogate
    smallest, largest = -extremes[0], extremes[1]
    metrics = torch.stack([sums[1] / count, smallest.to(wide), largest.to(wide), sums[2] / count, sums[3] / count])
    return loss, None, logprobs.view_as(labels), token_loss.view_as(labels), metrics
