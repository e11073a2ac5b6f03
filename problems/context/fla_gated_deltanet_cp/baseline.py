"""Gated DeltaNet: exchange sequence shards for head shards, run the delta rule over all tokens, exchange
back.
"""

import torch
import torch.distributed as dist
from torch.nn import functional

from problems.shared.delta_rule import gated_delta_rule
from problems.shared.ulysses import reshard

CHUNK = 64


@torch.no_grad()
def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """q, k [B, S, Hq, K], v [B, S, Hv, V], gate, beta [B, S, Hv], a_log, dt_bias [Hv/W] -> [B, S, Hv, V].

    Shards of the sequence in rank order; rank r owns the r-th part of the heads and knows a_log and dt_bias
    of its own value heads. Value head j reads query/key head j * Hq // Hv. The state decays by
    exp(-exp(a_log) softplus(gate + dt_bias)) a token; q and k are normalised and q is scaled by K^-0.5.
    Float32 or wider until the result is rounded to q's dtype.
    """
    dtype = q.dtype
    wide = torch.promote_types(dtype, torch.float32)
    q, k, v, gate, beta = (reshard(x, 2, 1, group).to(wide) for x in (q, k, v, gate, beta))
    batch, heads = v.shape[0], v.shape[2]
    q = functional.normalize(q, dim=-1, eps=1e-6) * q.shape[-1] ** -0.5
    k = functional.normalize(k, dim=-1, eps=1e-6)
    q, k = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (q, k))
    log_decay = -a_log.to(wide).exp() * functional.softplus(gate + dt_bias.to(wide))

    def by_head(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).flatten(0, 1)

    o = gated_delta_rule(by_head(q), by_head(k), by_head(v), by_head(log_decay.unsqueeze(-1)), by_head(beta), CHUNK)
    return reshard(o.unflatten(0, (batch, heads)).transpose(1, 2).to(dtype), 1, 2, group)
