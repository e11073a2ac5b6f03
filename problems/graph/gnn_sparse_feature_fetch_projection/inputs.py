"""Inputs of problem 68: a range-sharded feature table, a list of queries and a projection."""

from collections.abc import Callable
from typing import Any

import torch

from problems.setting import RankSetting, SizesRefused


def _nodes(setting: RankSetting) -> int:
    """Nodes in all; upstream rounds them up to a multiple of W."""
    s = setting.sizes
    return int(s.shard * setting.world if setting.distribution == "upstream" else s.nodes)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """local_embedding_shard [rows of this rank, D] N(0, 1), input_node_ids [Q] int64, proj_matrix [D, D].

    Upstream walks over the owners in turn and over the first rows of their shards, and draws a projection per
    rank. Otherwise the projection is shared and scaled by 1/sqrt(D); half of the ids are uniform over all
    nodes, half follow a power law, the first and the last node are among them, and in every fourth trial
    nothing is asked of the last rank.
    """
    s, world, rank = setting.sizes, setting.world, setting.rank
    nodes = _nodes(setting)
    rows = min((rank + 1) * s.shard, nodes) - rank * s.shard
    if rows < 1:
        raise SizesRefused(f"nodes={nodes} leaves nothing for rank {rank} of {world}: take more nodes")
    table = setting.randn(rows, s.D)
    if setting.distribution == "upstream":
        query = torch.arange(s.Q, device=setting.device)
        ids = (query + rank) % world * s.shard + (7 * query + rank) % s.shard
        return _named(table, ids, setting.randn(s.D, s.D))
    uniform = setting.rand(s.Q, dtype=torch.float64)
    power = torch.where(setting.rand(s.Q, dtype=torch.float32) < 0.5, uniform, uniform**3)
    reachable = (world - 1) * s.shard if world > 1 and setting.trial % 4 == 2 else nodes
    ids = (power * reachable).long().clamp(max=reachable - 1)
    ids[0], ids[-1] = reachable - 1, 0
    return _named(table, ids, setting.randn(s.D, s.D, shared=True) * s.D**-0.5)


def _named(table: torch.Tensor, ids: torch.Tensor, matrix: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"local_embedding_shard": table, "input_node_ids": ids, "proj_matrix": matrix}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, Any]:
    """The nodes in all."""
    return {"num_total_nodes": _nodes(setting)}


def oracle(tensors: dict[str, torch.Tensor], setting: RankSetting, solution: Callable[..., Any]) -> torch.Tensor:
    """The rows as they are (a projection by the identity moves them unchanged), multiplied in float64."""
    matrix = tensors["proj_matrix"]
    given = tensors["local_embedding_shard"], tensors["input_node_ids"], torch.eye(*matrix.shape).to(matrix)
    return solution(*given, _nodes(setting), setting.groups["world"]).double() @ matrix.double()
