"""Gated MLP whose weights are sharded over tensor-parallel ranks and again over FSDP ranks."""

import torch
import torch.distributed as dist
from torch.nn import functional

_made: dict[tuple[int, int], tuple[dist.ProcessGroup, dist.ProcessGroup]] = {}


def groups(n_tp: int, n_fsdp: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """This rank's (TP group, FSDP group) in a world of rank = f·n_tp + t; made by the first call, on all ranks together."""
    if (n_tp, n_fsdp) not in _made:
        grid = torch.arange(n_fsdp * n_tp).view(n_fsdp, n_tp)
        tp, _ = dist.new_subgroups_by_enumeration(grid.tolist())
        fsdp, _ = dist.new_subgroups_by_enumeration(grid.t().tolist())
        _made[n_tp, n_fsdp] = tp, fsdp
    return _made[n_tp, n_fsdp]


def gather(shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """shard [a, b] of every rank of the group -> [ranks, a, b]."""
    whole = shard.new_empty(dist.get_world_size(group), *shard.shape)
    dist.all_gather_into_tensor(whole, shard, group=group)
    return whole


@torch.no_grad()
def solution(
    x_local: torch.Tensor,
    W1_shard: torch.Tensor,
    W2_shard: torch.Tensor,
    W3_shard: torch.Tensor,
    n_tp: int,
    n_fsdp: int,
) -> torch.Tensor:
    """x_local [B_f, D], W1_shard and W2_shard [D/n_fsdp, F/n_tp], W3_shard [F/n_tp, D/n_fsdp] -> y [B_f, D].

    y = (silu(x W1) · (x W2)) W3 for the rows of this FSDP index, the same on every rank of the TP group.
    """
    assert n_tp * n_fsdp == dist.get_world_size(), "n_tp * n_fsdp must be the world size"
    tp_group, fsdp_group = groups(n_tp, n_fsdp)
    w1 = gather(W1_shard, fsdp_group).flatten(0, 1)
    w2 = gather(W2_shard, fsdp_group).flatten(0, 1)
    w3 = gather(W3_shard, fsdp_group).transpose(0, 1).flatten(1)

    gated = functional.silu(x_local @ w1) * (x_local @ w2)
    y = gated @ w3
    dist.all_reduce(y, op=dist.ReduceOp.SUM, group=tp_group)
    return y
