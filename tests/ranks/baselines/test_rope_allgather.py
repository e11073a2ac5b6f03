"""Compares rotary embedding and its gather with complex rotation, on one process from all ranks' inputs."""

import pytest
import torch


def rotated(u, cos, sin):
    """The definition element by element: u[i] cos[i] + rho(u)[i] sin[i]."""
    half = u.shape[-1] // 2
    partner = torch.roll(u, half, dims=-1)
    sign = torch.where(torch.arange(2 * half) < half, -1.0, 1.0).double()
    return u * cos.unsqueeze(2) + sign * partner * sin.unsqueeze(2)


@pytest.mark.parametrize("seed", [1, 2])
def test_rope_allgather_rotates_and_joins_the_sequence(gathered, seed):
    ranks = gathered("rope_allgather", 2, seed=seed, M=128, N=512, dim=16)
    tensors = [{name: t.double() for name, t in rank.tensors.items()} for rank in ranks]
    for index, name in enumerate(("q_local", "k_local")):
        expected = torch.cat([rotated(t[name], t["cos_local"], t["sin_local"]) for t in tensors], dim=1)
        for rank in ranks:
            torch.testing.assert_close(rank.result[index].double(), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(rank.oracle[index], expected)


def test_real_tables_turn_pairs_and_keep_their_length(gathered):
    ranks = gathered("rope_allgather", 2, seed=2, M=64, N=512, dim=16)
    cos = torch.cat([rank.tensors["cos_local"] for rank in ranks], dim=1).double()
    sin = torch.cat([rank.tensors["sin_local"] for rank in ranks], dim=1).double()
    q = torch.cat([rank.tensors["q_local"] for rank in ranks], dim=1).double()
    pairs = torch.complex(*q.chunk(2, dim=-1))
    turned = pairs * torch.complex(cos[..., :8], sin[..., :8]).unsqueeze(2)
    result = torch.complex(*ranks[0].result[0].double().chunk(2, dim=-1))
    torch.testing.assert_close(result, turned, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result.abs(), pairs.abs(), rtol=1e-5, atol=1e-5)
    step = torch.complex(cos, sin).angle().diff(dim=1)[0, :, 0]
    torch.testing.assert_close(step.remainder(2 * torch.pi), torch.ones(7).double(), rtol=1e-4, atol=1e-4)
