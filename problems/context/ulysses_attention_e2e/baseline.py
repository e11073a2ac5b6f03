"""Ulysses attention block as published: three exchanges around a mixing among the heads of each token."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.shared.ulysses import reshard


@torch.no_grad()
def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    num_heads: int = 8,
    causal: bool = False,
) -> torch.Tensor:
    """hidden_states [B, S, H], w_qkv [3·A·d, H] for A = num_heads, w_o [H, A·d]; W divides A.

    Returns [B, S, H]. Attention runs over the A/W heads of one block and one token, not over positions; causal hides later
    heads of the block.
    """
    q, k, v = F.linear(hidden_states, w_qkv).unflatten(-1, (3, num_heads, -1)).unbind(2)
    q = reshard(q, 2, 1, group)
    kv = reshard(torch.stack((k, v), dim=3).flatten(2, 3), 2, 1, group)  # k and v alternate by head
    k, v = kv.unflatten(2, (-1, 2)).unbind(3)
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if causal and q.shape[1] > 1:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    mixed = scores.softmax(dim=-1) @ v
    return F.linear(reshard(mixed, 1, 2, group).flatten(2), w_o)
