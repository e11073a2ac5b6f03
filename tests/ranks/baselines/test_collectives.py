"""Compares the plain collectives with their definitions, computed on one process from all ranks' inputs."""

import pytest
import torch

from problems.catalogue import load_catalogue


def stacked(ranks):
    return torch.stack([rank.tensors["tensor"] for rank in ranks])


def test_allgather_stacks_the_tensors_in_rank_order(gathered):
    ranks = gathered("allgather", 3, dtype="bfloat16", M=7, N=5)
    for rank in ranks:
        assert torch.equal(rank.result, stacked(ranks))


@pytest.mark.parametrize("seed", [1, 2])
def test_broadcast_gives_everybody_the_tensor_of_the_root(gathered, seed):
    ranks = gathered("broadcast", 3, seed=seed, M=7, N=5)
    for rank in ranks:
        assert int(rank.tensors["src"]) == seed
        assert torch.equal(rank.result, ranks[seed].tensors["tensor"])


def test_reduce_sums_at_the_root_and_copies_elsewhere(gathered):
    ranks = gathered("reduce", 3, seed=2, M=7, N=5)
    total = stacked(ranks).double().sum(0)
    torch.testing.assert_close(ranks[2].result.double(), total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ranks[2].oracle, total)
    for rank in ranks[:2]:
        assert torch.equal(rank.result, rank.tensors["tensor"])


def test_scatter_deals_out_the_chunks_of_the_root(gathered):
    ranks = gathered("scatter", 3, dtype="bfloat16", seed=1, M=7, N=5)
    chunks = ranks[1].tensors["tensor"]
    assert chunks.shape == (3, 7, 5)
    for rank in ranks:
        assert torch.equal(rank.result, chunks[rank.rank])
        if rank.rank != 1:
            assert rank.tensors["tensor"].isnan().all()


def test_gather_stacks_at_root_and_returns_argument_elsewhere(gathered):
    ranks = gathered("gather", 3, seed=1, M=7, N=5)
    assert torch.equal(ranks[1].result, stacked(ranks))
    for rank in (ranks[0], ranks[2]):
        assert torch.equal(rank.result, rank.tensors["tensor"])


def test_reducescatter_keeps_ranks_own_row_block_of_sum(gathered):
    ranks = gathered("reducescatter", 3, M=5, N=4)
    blocks = stacked(ranks).double().sum(0).chunk(3)
    for rank in ranks:
        torch.testing.assert_close(rank.result.double(), blocks[rank.rank], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rank.oracle, blocks[rank.rank])


def test_alltoall_transposes_ranks_and_chunks(gathered):
    ranks = gathered("alltoall", 3, dtype="float16", M=5, N=4)
    chunks = stacked(ranks)
    for rank in ranks:
        assert torch.equal(rank.result, chunks[:, rank.rank])


@pytest.mark.parametrize("slug", ["allgather", "broadcast", "scatter", "gather", "alltoall"])
def test_copies_are_judged_bit_for_bit(slug):
    assert load_catalogue().find(slug).check.exact == ["*"]
