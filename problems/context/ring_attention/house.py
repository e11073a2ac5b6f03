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
    team, given = symm.team(group), (q, k, v, softmax_scale, causal, group)
    batch, rows, heads, width = q.shape
    output = team.out((batch, rows, -(-heads // world) * world, width), q.dtype, "attended")
    if not q.is_cuda or heads % world or not is_recordable(rows, width, q.dtype, group):
        return attended(*given, output)
    write_attended(*given, output)
    return output


def attended(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    causal: bool,
    group: dist.ProcessGroup | None,
    output: torch.Tensor,
) -> torch.Tensor:
    """The result, which is the output if each rank has equally many heads; see `attend_together`."""
    return attend_together(torch.stack((q, k, v), dim=2), scale, causal, group, output)


@recorded
def write_attended(*given: Any) -> None:
    """Writes to the last argument; takes what `attended` takes."""
    attended(*given)
