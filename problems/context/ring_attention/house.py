"""House kernel: ring attention without a ring; short sequences take one launch, for long ones ranks exchange heads."""

from typing import Any

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.attention import attend, attend_short, attend_together, is_recordable, is_short
from sandbox.kit.recorded import recorded

symm.reserve(4 << 30)  # two buffers for each exchange, of the largest sizes


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """q, k, v [B, S, H, d]: rows r·S .. r·S + S - 1 of the sequence -> the attention output of these rows, same shape.

    The softmax covers the keys of all ranks, up to the query's own position if causal. The scale is d^-1/2 if None.

    To exchange heads, a rank sends (W - 1)/W of its queries, keys, values and outputs: 4·(W - 1)/W·n elements in two
    launches. A ring sends 2·(W - 1)·n in W - 1 steps. Under the causal mask every rank computes W/2 blocks; the last
    rank of a ring computes W - 1/2.
    """
    world = dist.get_world_size(group)
    if q.is_cuda and is_short(q.shape[1], q.shape[3], world):
        team = symm.team(group)
        return attend_short(q.contiguous(), k.contiguous(), v.contiguous(), softmax_scale, causal, team)
    if world == 1:
        return attend(q, k, v, softmax_scale, causal)
    qkv, heads = torch.stack((q, k, v), dim=2), q.shape[2]
    if not q.is_cuda or heads % world or not is_recordable(q.shape[1], q.shape[3], q.dtype, group):
        return attend_together(qkv, softmax_scale, causal, group)
    output = symm.team(group).out(q.shape, q.dtype, "attended")
    write_attended(qkv, softmax_scale, causal, group, output)
    return output


@recorded
def write_attended(*given: Any) -> None:
    """Writes to the last argument; takes what `attend_together` takes."""
    attend_together(*given)
