"""Compares tensor-parallel projections with their formulas, computed on one process from all ranks' inputs."""

import math

import pytest
import torch
from torch.nn import functional


@pytest.mark.parametrize("world", [1, 3])
def test_gemv_decode_is_the_whole_projection(gathered, world):
    ranks = gathered("gemv_decode", world, M=2048, N=128)
    weight = torch.cat([rank.tensors["weight_shard"] for rank in ranks]).double()
    bias = torch.cat([rank.tensors["bias_shard"] for rank in ranks]).double()
    expected = ranks[0].tensors["hidden_states"].double() @ weight.T + bias
    for rank in ranks:
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("world", "seed"), [(1, 0), (2, 3), (4, 2), (6, 1)])
def test_attention_layer_of_all_heads_and_all_rows(gathered, world, seed):
    ranks = gathered("ring_attention_tp", world, seed=seed)
    sizes = ranks[0].sizes
    causal, scaled = ranks[0].tensors["mode"].tolist()
    scale = (1.5 if scaled else 1.0) / math.sqrt(sizes.d)
    x = torch.cat([ranks[c * sizes.tp].tensors["hidden_states"] for c in range(sizes.cp)], dim=1).double()
    total = 0
    for t in range(sizes.tp):
        w_qkv, w_o = (ranks[t].tensors[name].double() for name in ("w_qkv", "w_o"))
        heads = (x @ w_qkv.T).view(*x.shape[:2], 3, sizes.H_l, sizes.d).permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(*heads, is_causal=bool(causal), scale=scale)
        total = total + context.transpose(1, 2).flatten(2) @ w_o.T
    for rank in ranks:
        expected = total.chunk(sizes.cp, dim=1)[rank.rank // sizes.tp]
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-3, atol=1e-4)
