"""Compares the pipeline of attention layers with the stacked layers on one process."""

import math

import pytest
import torch
from torch.nn import functional


@pytest.mark.parametrize(("world", "seed"), [(1, 0), (2, 1), (4, 2), (4, 3)])
def test_every_stage_returns_its_layer_of_the_stack(gathered, world, seed):
    ranks = gathered("ring_attention_pp", world, seed=seed)
    sizes = ranks[0].sizes
    causal, scaled = ranks[0].tensors["mode"].tolist()
    scale = (1.5 if scaled else 1.0) / math.sqrt(sizes.d)
    x = torch.cat([rank.tensors["hidden_states"] for rank in ranks[: sizes.cp]], dim=1).double()
    for stage in range(sizes.pp):
        members = ranks[stage * sizes.cp : (stage + 1) * sizes.cp]
        w_qkv, w_o = (members[0].tensors[name].double() for name in ("w_qkv", "w_o"))
        heads = (x @ w_qkv.T).view(*x.shape[:2], 3, sizes.H, sizes.d).permute(2, 0, 3, 1, 4)
        context = functional.scaled_dot_product_attention(*heads, is_causal=bool(causal), scale=scale)
        x = context.transpose(1, 2).flatten(2) @ w_o.T
        for rank, expected in zip(members, x.chunk(sizes.cp, dim=1), strict=True):
            torch.testing.assert_close(rank.oracle, expected)
            torch.testing.assert_close(rank.result.double(), expected, rtol=1e-3, atol=1e-3)
