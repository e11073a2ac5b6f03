"""Compares graph baselines with plain Python loops over nodes and rows, on one process from all ranks' inputs."""

import pytest
import torch


def sampled(seeds, fanouts, ranks, owner):
    """Walks the graph node by node as the card says; returns (nodes, row, col, edge)."""
    nodes, frontier = list(seeds), list(seeds)
    place = {node: index for index, node in enumerate(nodes)}
    row, col, edge = [], [], []
    for fanout in fanouts:
        hop = []
        for v in frontier:
            start, end = ranks[owner[v]]["local_adj_row_ptr"][v : v + 2].tolist()
            for e in range(start, end if fanout < 0 else min(end, start + fanout)):
                hop.append((int(ranks[owner[v]]["local_adj_col"][e]), v, e))
        frontier = []
        for u, _, _ in hop:
            if u not in place:
                place[u] = len(nodes)
                nodes.append(u)
                frontier.append(u)
        row += [place[u] for u, _, _ in hop]
        col += [place[v] for _, v, _ in hop]
        edge += [e for _, _, e in hop]
        if not frontier:
            break
    return nodes, row, col, edge


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (3, 1), (3, 4)])
def test_sampling_is_a_walk_over_the_whole_graph(gathered, world, seed):
    """Seed 4 takes all neighbours in the last hop."""
    ranks = gathered("gnn_neighbor_sampling", world, dtype="int64", seed=seed, nodes=300, seeds=9, seeds_min=9)
    everything = [rank.tensors for rank in ranks]
    assert (everything[0]["fanouts"][-1] == -1) == (seed == 4)
    for rank in ranks:
        t = rank.tensors
        expected = sampled(t["seed_nodes"].tolist(), t["fanouts"].tolist(), everything, t["node_to_rank"].tolist())
        assert [part.tolist() for part in rank.result] == list(expected)
        assert len(expected[0]) > 2 * len(t["seed_nodes"])


def test_ranks_may_run_dry_at_different_hops(gathered):
    ranks = gathered("gnn_neighbor_sampling", 4, dtype="int64", seed=2, nodes=12, seeds=1, seeds_min=1, hops=5)
    everything = [rank.tensors for rank in ranks]
    for rank in ranks:
        t = rank.tensors
        expected = sampled(t["seed_nodes"].tolist(), t["fanouts"].tolist(), everything, t["node_to_rank"].tolist())
        assert [part.tolist() for part in rank.result] == list(expected)


def delivered(ranks, rows, counts):
    """Returns the rows that each rank receives, in its rotated order. rows[s] is split by these counts of sender s."""
    world = len(ranks)
    chunks = [rows[r].split(ranks[r].tensors[counts].tolist()) for r in range(world)]
    return [torch.cat([chunks[(r + i) % world][(world - i) % world] for i in range(world)]) for r in range(world)]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_feature_exchange_follows_the_rotated_order(gathered, world):
    ranks = gathered("gnn_feature_exchange_all2all", world, M=64)
    rows = [rank.tensors["local_features"][rank.tensors["seed_inverse_ids"]] for rank in ranks]
    for rank, expected in zip(ranks, delivered(ranks, rows, "counts_received"), strict=True):
        assert torch.equal(rank.result, expected)
        if world > 1:
            assert len(set(rank.tensors["counts_received"].tolist())) > 1


@pytest.mark.parametrize("world", [1, 2, 4])
def test_feature_exchange_backward_is_the_adjoint(gathered, world):
    """Compares out = Aᵀ g, the sum over arriving rows, with autograd's derivative of the forward exchange."""
    ranks = gathered("gnn_feature_exchange_all2all_backward", world, M=64)
    s = ranks[0].sizes
    features = [torch.zeros(s.seed_size, s.h, dtype=torch.float64, requires_grad=True) for _ in ranks]
    fetched = [f[rank.tensors["seed_inverse_ids"]] for f, rank in zip(features, ranks, strict=True)]
    arrived = delivered(ranks, [rank.tensors["grad_output"].double() for rank in ranks], "counts_sent")
    sum((a * f).sum() for a, f in zip(arrived, fetched, strict=True)).backward()
    for rank, f in zip(ranks, features, strict=True):
        torch.testing.assert_close(rank.result.double(), f.grad, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(rank.oracle, f.grad)
        assert bool((f.grad == 0).all(dim=1).any())
