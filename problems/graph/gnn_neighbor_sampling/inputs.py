"""Inputs of problem 64: a graph, each rank with the adjacency lists of its own nodes, and seeds."""

import torch

from problems.setting import RankSetting

MOST_NEIGHBOURS = 64
UPSTREAM_DEGREE = 16


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """seed_nodes [s], local_adj_row_ptr [Nn + 1], local_adj_col [E_r], node_to_rank [Nn] and fanouts [hops], all int64.

    Upstream: a ring in which node v has the neighbours v+1 .. v+16, whole on every rank, and consecutive
    seeds; nothing is random. Otherwise degrees follow a power law (0 to 64, a tenth of the nodes isolated),
    popular nodes are neighbours of many, owners are random, and a rank has the lists of its own nodes alone.
    In every fourth trial the last hop takes all. Beside upstream's iterations every node has 16 neighbours and the last hop
    takes some of them; the lists of other ranks' nodes are there, too, but wrong.
    """
    s, device = setting.sizes, setting.device
    fanouts = torch.arange(s.hops, 0, -1, device=device) * s.fanout
    if setting.distribution == "upstream":
        nodes = torch.arange(s.Nn, device=device)
        neighbours = nodes[:, None] + torch.arange(1, UPSTREAM_DEGREE + 1, device=device)
        return {
            "seed_nodes": (setting.rank * s.s + torch.arange(s.s, device=device)) % s.Nn,
            "local_adj_row_ptr": torch.arange(s.Nn + 1, device=device) * UPSTREAM_DEGREE,
            "local_adj_col": (neighbours % s.Nn).view(-1),
            "node_to_rank": nodes % setting.world,
            "fanouts": fanouts,
        }
    owner = torch.arange(s.Nn, device=device)[setting.permutation(s.Nn, shared=True)] % setting.world
    popular = setting.permutation(s.Nn, shared=True)
    if setting.beside_upstream:
        chosen = setting.rand(s.Nn * UPSTREAM_DEGREE, dtype=torch.float64) ** 2 * s.Nn
        return {
            "seed_nodes": setting.permutation(s.Nn)[: s.s],
            "local_adj_row_ptr": torch.arange(s.Nn + 1, device=device) * UPSTREAM_DEGREE,
            "local_adj_col": popular[chosen.to(torch.int64)],
            "node_to_rank": owner,
            "fanouts": fanouts,
        }
    degrees = _degrees(s.Nn // setting.world, device)
    extent = torch.zeros(s.Nn, dtype=torch.int64, device=device)
    extent[owner == setting.rank] = degrees[setting.permutation(len(degrees))]
    chosen = setting.rand(int(degrees.sum()), dtype=torch.float64) ** 2 * s.Nn
    if setting.trial % 4 == 0:
        fanouts[-1] = -1
    return {
        "seed_nodes": setting.permutation(s.Nn)[: s.s],
        "local_adj_row_ptr": torch.nn.functional.pad(extent.cumsum(0), (1, 0)),
        "local_adj_col": popular[chosen.to(torch.int64)],
        "node_to_rank": owner,
        "fanouts": fanouts,
    }


def _degrees(count: int, device: torch.device) -> torch.Tensor:
    """The degrees of one rank's nodes, the same on all ranks and in all trials, so that shapes do not change."""
    place = (torch.arange(count, dtype=torch.float64, device=device) + 0.5) / count
    degrees = (3 * place**-0.45).clamp(max=MOST_NEIGHBOURS).to(torch.int64)
    degrees[count - count // 10 :] = 0
    return degrees


def capacity(setting: RankSetting) -> int:
    """No node is found twice and none is expanded twice, so the whole graph is the limit."""
    s = setting.sizes
    if setting.distribution == "upstream":
        edges = s.Nn * UPSTREAM_DEGREE
    else:
        edges = setting.world * int(_degrees(s.Nn // setting.world, torch.device("cpu")).sum())
    return int(8 * (s.Nn + 3 * edges))
