"""Load-balancing loss: softmax, top-k, a histogram, and the mean of the ranks' losses."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    gate_logits: torch.Tensor | tuple[torch.Tensor, ...] | list[torch.Tensor],
    num_experts: int,
    top_k: int = 2,
    attention_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """gate_logits [M, E], or one such tensor a layer; attention_mask [B, T] of 0 and 1 with B·T = M, or None.

    Returns the 0-dim float32 mean over ranks of E · Σ_e f[e]·q[e], with f[e] the share of the tokens' choices that fell on
    expert e (summed over the top_k places) and q[e] the mean probability of e, both over the positions that are not masked.
    """
    logits = gate_logits if isinstance(gate_logits, torch.Tensor) else torch.cat(tuple(gate_logits), dim=0)
    wide = torch.promote_types(logits.dtype, torch.float32)
    probabilities = torch.softmax(logits, dim=-1)
    chosen = torch.topk(probabilities, top_k, dim=-1).indices
    if attention_mask is None:
        hits = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, chosen, True)
        share = hits.sum(dim=0).to(wide) / logits.shape[0]
        mean = probabilities.mean(dim=0)
    else:
        layers = logits.shape[0] // attention_mask.numel()
        keep = attention_mask.reshape(-1, 1).repeat(layers, 1).to(torch.bool)
        total = attention_mask.sum() * layers
        hits = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, chosen, keep.expand_as(chosen))
        share = hits.sum(dim=0).to(wide) / total
        mean = (probabilities * keep).sum(dim=0) / total
    loss = num_experts * (share * mean).sum()
    if dist.is_initialized():
        dist.all_reduce(loss, op=dist.ReduceOp.SUM)
        loss /= dist.get_world_size()
    return loss
