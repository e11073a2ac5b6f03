"""Compares ring attention with softmax attention over the whole sequence."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from problems.setting import RankSetting
from problems.shared.ring import draw_mode


@pytest.mark.parametrize(("world", "seed"), [(1, 0), (2, 2), (3, 3), (4, 1)])
def test_ring_attention_is_attention_of_the_joined_sequence(gathered, world, seed):
    ranks = gathered("ring_attention", world, seed=seed)
    causal, scaled = ranks[0].tensors["mode"].tolist()
    scale = (1.5 if scaled else 1.0) / math.sqrt(ranks[0].sizes.d)
    q, k, v = (torch.cat([rank.tensors[name] for rank in ranks], dim=1).double().transpose(1, 2) for name in "qkv")
    whole = functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), scale=scale)
    for rank, expected in zip(ranks, whole.transpose(1, 2).chunk(world, dim=1), strict=True):
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-4, atol=1e-5)


def test_modes_cover_masks_and_scales():
    meaningful = RankSetting(0, 1, SimpleNamespace(), torch.float32, torch.device("cpu"))
    modes = {tuple(draw_mode(meaningful.replace(trial=trial)).tolist()) for trial in range(12)}
    assert modes == {(0, 0), (0, 1), (1, 0), (1, 1)}
