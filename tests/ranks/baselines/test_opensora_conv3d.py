"""Compares the channel-sharded convolution with one convolution over all channels."""

import pytest
import torch
import torch.nn.functional as F

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode


@pytest.mark.parametrize(("world", "seed"), [(3, 1), (2, 4)])
def test_conv3d_is_the_convolution_over_all_channels(gathered, world, seed):
    """Seed 4 has no bias."""
    ranks = gathered("opensora_conv3d_allreduce", world, seed=seed)
    video = torch.cat([rank.tensors["input"] for rank in ranks], dim=1).double()
    weight = torch.cat([rank.tensors["weight"] for rank in ranks], dim=1).double()
    expected = F.conv3d(video, weight, ranks[0].tensors["bias"].double() if seed != 4 else None)
    for rank in ranks:
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rank.oracle, expected)


def test_conv3d_with_tuples_and_groups_on_each_rank(in_ranks):
    videos, weights = torch.randn(2, 2, 4, 5, 7, 6), torch.randn(2, 6, 2, 2, 3, 3)
    steps = {"stride": (1, 2, 1), "padding": (0, 1, 2), "dilation": (1, 1, 2)}

    def work(rank, world):
        baseline = ProblemCode(load_catalogue().find("76")).baseline
        return baseline(videos[rank], weights[rank], torch.ones(6), *steps.values(), groups=2)

    expected = sum(F.conv3d(v, w, groups=2, **steps) for v, w in zip(videos, weights, strict=True)) + 1
    for got in in_ranks(2, work):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
