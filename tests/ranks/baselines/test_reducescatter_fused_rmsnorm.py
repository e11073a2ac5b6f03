"""Compares the sequence-parallel reduce-scatter with norm with its formula."""

import pytest
import torch


@pytest.mark.parametrize("world", [1, 3])
def test_rms_norm_of_the_averaged_rows(gathered, world):
    ranks = gathered("reducescatter_fused_rmsnorm", world, M=12, N=40)
    mean = sum(rank.tensors["rs_input_1d"].double() for rank in ranks) / world
    gamma = ranks[0].tensors["gamma"].double()
    rows = mean.view(world, -1, gamma.numel())
    expected = rows / (rows.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gamma
    for rank in ranks:
        torch.testing.assert_close(rank.oracle, expected[rank.rank])
        torch.testing.assert_close(rank.result.double(), expected[rank.rank], rtol=1e-4, atol=1e-5)
