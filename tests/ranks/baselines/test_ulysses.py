"""Compares Ulysses exchanges with their index formulas, computed on one process from all ranks' inputs."""

import pytest
import torch


def _whole(ranks, name, cut_dim):
    """The tensor of which every rank has a slice along cut_dim."""
    return torch.cat([rank.tensors[name] for rank in ranks], dim=cut_dim)


@pytest.mark.parametrize("layout", range(6))
def test_all_to_all_cuts_and_joins_dimensions(gathered, layout):
    dims = ((0, 1), (1, 0), (1, 2), (2, 1), (0, 0), (-2, 0))
    ranks = gathered("ulysses_all_to_all_tensor_primitive", 3, seed=layout, M=12, N=8)
    scatter, gather = dims[layout]
    for r, rank in enumerate(ranks):
        expected = torch.cat([source.tensors["x"].chunk(3, scatter)[r] for source in ranks], dim=gather)
        assert torch.equal(rank.result, expected)
        assert rank.result.is_contiguous()


@pytest.mark.parametrize("world", [1, 3])
def test_all_gather_stacks_shards_by_rank(gathered, world):
    ranks = gathered("ulysses_all_gather_into_tensor_primitive", world, M=5, N=3)
    for rank in ranks:
        assert torch.equal(rank.result, _whole(ranks, "x", 0))


@pytest.mark.parametrize(("world", "seed"), [(2, 2), (4, 2), (4, 3)])
def test_variable_all_gather_joins_unequal_shards(gathered, world, seed):
    ranks = gathered("ulysses_all_gather_variable_primitive", world, seed=seed, M=6, N=3)
    dim = seed % 2
    lengths = [rank.tensors["x"].shape[dim] for rank in ranks]
    assert max(lengths) == 12
    assert (0 in lengths) == (world > 2)
    for rank in ranks:
        assert torch.equal(rank.result, _whole(ranks, "x", dim))
        assert rank.result.is_contiguous()


@pytest.mark.parametrize("layout", range(5))
def test_gather_seq_scatter_heads_gives_all_positions(gathered, layout):
    world, seq, head = 4, (1, 1, 1, 2, 0)[layout], (2, 2, 2, 1, 1)[layout]
    ranks = gathered("ulysses_gather_seq_scatter_heads", world, seed=layout, M=128, N=192, D=3)
    length = {1: 11, 2: 9}.get(layout, 12)
    whole = _whole(ranks, "x", seq).narrow(seq, 0, length)
    for r, rank in enumerate(ranks):
        assert torch.equal(rank.result, whole.chunk(world, head)[r])


@pytest.mark.parametrize("layout", range(3))
def test_gather_heads_scatter_seq_pads_with_zeros(gathered, layout):
    world, seq, head = 8, (1, 2, 0)[layout], (2, 1, 1)[layout]
    ranks = gathered("ulysses_gather_heads_scatter_seq", world, seed=layout, M=64, N=64 * 9, A=2, D=3)
    whole = _whole(ranks, "x", head)
    for r, rank in enumerate(ranks):
        positions = range(2 * r, 2 * r + 2)
        slices = [whole.select(seq, p) if p < 9 else torch.zeros_like(whole.select(seq, 0)) for p in positions]
        assert torch.equal(rank.result, torch.stack(slices, dim=seq))


@pytest.mark.parametrize("layout", range(5))
def test_packed_exchange_keeps_the_packing(gathered, layout):
    world, seq = 2, 0 if layout == 4 else 1
    ranks = gathered("ulysses_gather_seq_scatter_heads_qkv", world, seed=layout, M=128, N=192, A=2, D=4)
    whole = _whole(ranks, "qkv_tensor", seq)
    length = 5 if layout in (2, 3) else 6
    for r, rank in enumerate(ranks):
        parts = [projection.chunk(world, dim=-1)[r] for projection in whole.chunk(3, dim=-1)]
        expected = torch.stack(parts, dim=-2) if layout in (1, 3) else torch.cat(parts, dim=-1)
        assert torch.equal(rank.result, expected.narrow(seq, 0, length))


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_attention_block_mixes_the_heads_of_each_token(gathered, world):
    ranks = gathered("ulysses_attention_e2e", world, M=64, N=512, D=4)
    heads, block = 8, 8 // world
    for rank in ranks:
        x, w_qkv, w_o = (rank.tensors[name].double() for name in ("hidden_states", "w_qkv", "w_o"))
        projected = (x @ w_qkv.t()).view(*x.shape[:2], 3, heads, 4)
        mixed = torch.zeros(*x.shape[:2], heads, 4, dtype=torch.float64)
        for h in range(heads):
            mates = range(h // block * block, h // block * block + block)
            scores = torch.stack([(projected[:, :, 0, h] * projected[:, :, 1, j]).sum(-1) / 2 for j in mates])
            weights = scores.exp() / scores.exp().sum(dim=0)
            mixed[:, :, h] = sum(weights[i, ..., None] * projected[:, :, 2, j] for i, j in enumerate(mates))
        expected = mixed.flatten(2) @ w_o.t()
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-4, atol=1e-5)
