"""Rotates queries and keys locally, then gathers both along the sequence."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    q_local: torch.Tensor, k_local: torch.Tensor, cos_local: torch.Tensor, sin_local: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """q_local, k_local [B, S, h, d], cos_local, sin_local [B, S, d] -> q_global, k_global [B, W·S, h, d], on
    every rank.

    The sequence of the result is the ranks' shards in rank order. Without a process group the rotated shards
    are returned.
    """
    cos, sin = cos_local.unsqueeze(2), sin_local.unsqueeze(2)
    q = _rotated(q_local, cos, sin)
    if not dist.is_initialized():
        return q, _rotated(k_local, cos, sin)
    all_q = q.new_empty((dist.get_world_size(), *q.shape))
    q_there = dist.all_gather_into_tensor(all_q, q, async_op=True)
    k = _rotated(k_local, cos, sin)
    all_k = k.new_empty((dist.get_world_size(), *k.shape))
    dist.all_gather_into_tensor(all_k, k)
    q_there.wait()
    return _joined(all_q), _joined(all_k)


def _rotated(u: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = u.chunk(2, dim=-1)
    return u * cos + torch.cat((-second, first), dim=-1) * sin


def _joined(shards: torch.Tensor) -> torch.Tensor:
    """[W, B, S, h, d] -> [B, W·S, h, d]"""
    return shards.transpose(0, 1).flatten(1, 2).contiguous()
