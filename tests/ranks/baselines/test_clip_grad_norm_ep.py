"""Compares clipping of dense and expert gradients with one norm over all ranks' inputs, computed on one process."""

import pytest
import torch


@pytest.mark.parametrize(("world", "seed"), [(2, 1), (4, 1), (4, 3), (5, 1)])
def test_clip_grad_norm_ep_uses_one_norm_over_both_families(gathered, world, seed):
    ranks = gathered("clip_grad_norm_ep", world, seed=seed, M=6, N=10)
    experts = max(1, world // 2)
    dense = torch.cat([rank.tensors["dense"].double().flatten() for rank in ranks])
    expert = torch.cat([rank.tensors["expert"].double().flatten() for rank in ranks]) / experts
    norm = torch.cat([dense, expert]).norm()
    limit = float(ranks[0].tensors["max_norm"])
    assert (limit > 1) == (seed % 4 == 3)
    factor = min(1.0, limit / float(norm))
    for rank in ranks:
        assert rank.result["returned"].dtype == torch.float32
        torch.testing.assert_close(rank.result["returned"].double(), norm, rtol=1e-5, atol=0)
        torch.testing.assert_close(rank.oracle["returned"], norm)
        for family, divisor in (("dense", 1), ("expert", experts)):
            expected = rank.tensors[family].double() / divisor * factor
            torch.testing.assert_close(rank.result["written"][family].double(), expected, rtol=1e-5, atol=0)
            torch.testing.assert_close(rank.oracle["written"][family], expected)
