"""Compares graph problems with the formulas of their cards, computed on one process from all ranks' inputs."""

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode

# The trial is seed % 1009. In trial 2 one owner gets no pairs, in trial 3 one rank has none.
SEEDS = (2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_arrive_by_sender_and_position(gathered, seed):
    ranks = gathered("gnn_sparse_embedding_all2all", 3, seed=seed)
    pairs = [
        (int(i), sender, value)
        for sender, rank in enumerate(ranks)
        for i, value in list(zip(rank.tensors["idx"], rank.tensors["value"], strict=True))[: int(rank.tensors["count"])]
    ]
    for owner, rank in enumerate(ranks):
        mine = [(i, value) for i, _, value in pairs if i % 3 == owner]
        ids, values = rank.result
        assert ids.tolist() == [i for i, _ in mine]
        assert values.shape == (len(mine), 16)
        if mine:
            assert torch.equal(values, torch.stack([value for _, value in mine]))


@pytest.mark.parametrize("world", [1, 3])
def test_fetched_rows_are_projected_in_query_order(gathered, world):
    ranks = gathered("gnn_sparse_feature_fetch_projection", world, seed=2, nodes=1000)
    table = torch.cat([rank.tensors["local_embedding_shard"] for rank in ranks]).double()
    assert table.shape[0] == 1000
    for rank in ranks:
        expected = table[rank.tensors["input_node_ids"]] @ rank.tensors["proj_matrix"].double()
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rank.oracle, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_places_count_the_better_negatives(gathered, dtype):
    ranks = gathered("gnn_negative_scoring", 3, dtype=dtype)
    pos = torch.cat([rank.tensors["local_pos_scores"] for rank in ranks])
    neg = torch.cat([rank.tensors["local_neg_scores"] for rank in ranks])
    by_raw_score = 1 + (neg > pos[:, None]).sum(dim=1)
    by_probability = 1 + (torch.sigmoid(neg) > torch.sigmoid(pos)[:, None]).sum(dim=1)
    assert torch.equal(by_raw_score, by_probability), "the inputs have ties"
    for rank in ranks:
        assert torch.equal(rank.result, by_raw_score)
        assert torch.equal(rank.oracle, by_raw_score)


def test_ties_go_to_the_positive(in_ranks):
    def work(rank, world):
        solution = ProblemCode(load_catalogue().find("gnn_negative_scoring")).baseline
        pos = torch.tensor([1.0, 2.0])
        neg = torch.tensor([[1.0, 1.0, 3.0], [2.0, 0.0, 2.0]])
        return solution(pos[: 2 - rank], neg[: 2 - rank])

    for result in in_ranks(2, work):
        assert result.tolist() == [2, 1, 2]
