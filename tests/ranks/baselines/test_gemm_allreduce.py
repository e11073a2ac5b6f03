"""Compares the baseline with the formula of its card, computed on one process from all ranks' inputs."""

import pytest
import torch


@pytest.mark.parametrize("world", [1, 3])
def test_gemm_allreduce_is_the_product_of_the_joined_slices(gathered, world):
    ranks = gathered("gemm_allreduce", world)
    a = torch.cat([rank.tensors["A_local"] for rank in ranks], dim=1).double()
    b = torch.cat([rank.tensors["B_local"] for rank in ranks], dim=0).double()
    for rank in ranks:
        torch.testing.assert_close(rank.result.double(), a @ b, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(rank.oracle, a @ b)
