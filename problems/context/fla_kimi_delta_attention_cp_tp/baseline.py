"""Kimi Delta Attention: gather the sequence, run the delta rule up to the own tokens, sum over
tensor-parallel ranks.
"""

import torch
import torch.distributed as dist
from torch.nn import functional

from problems.shared.delta_rule import gated_delta_rule

CHUNK = 16
"""Decays are at least exp(-5) a token: 16 of them keep both halves of a product within float32."""


def _joined(x: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """x [B, S, ...] of each context-parallel rank -> [B, CP*S, ...]."""
    world = dist.get_world_size(group)
    gathered = x.new_empty((world, *x.shape))
    dist.all_gather_into_tensor(gathered, x.contiguous(), group=group)
    return gathered.movedim(0, 1).flatten(1, 2)


@torch.no_grad()
def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cp_group: dist.ProcessGroup | None = None,
    tp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """q, k, g [B, S, H, K], v [B, S, H, V], beta [B, S, H] logits, a_log [H], dt_bias [H*K] -> [B, S, H, V].

    The sequence is sharded over cp_group in rank order. Per head and key channel the state decays by exp(-5
    sigmoid(exp(a_log) (g + dt_bias))) a token; q and k are normalised and q is scaled by K^-0.5. The
    recurrence runs in float32 or wider; the result is rounded to q's dtype and summed over tp_group (if any)
    in that dtype.
    """
    dtype = q.dtype
    wide = torch.promote_types(dtype, torch.float32)
    shard, heads, channels = q.shape[1:]
    # Tokens behind the own ones cannot matter.
    needed = (dist.get_rank(cp_group) + 1) * shard
    q, k, v, g, beta = (_joined(x, cp_group)[:, :needed].to(wide) for x in (q, k, v, g, beta))
    slope = a_log.to(wide).exp()[:, None]
    log_decay = -5 * torch.sigmoid(slope * (g + dt_bias.to(wide).view(heads, channels)))
    q = functional.normalize(q, dim=-1, eps=1e-12) * channels**-0.5
    k = functional.normalize(k, dim=-1, eps=1e-12)

    def by_head(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).flatten(0, 1)

    strength = torch.sigmoid(beta)
    o = gated_delta_rule(by_head(q), by_head(k), by_head(v), by_head(log_decay), by_head(strength), CHUNK)
    o = o[:, -shard:].unflatten(0, (-1, heads)).transpose(1, 2).to(dtype).contiguous()
    if tp_group is not None and dist.get_world_size(tp_group) > 1:
        dist.all_reduce(o, op=dist.ReduceOp.SUM, group=tp_group)
    return o
