"""Compares data-parallel problems with their formulas, computed on one process from all ranks' inputs."""

import math

import pytest
import torch
from torch.nn import functional

NAMES = ("W1", "b1", "W2", "b2")


def close(result, oracle, expected, rtol=2e-5):
    """Asserts that the float64 oracle is right to rounding, and the float32 result to rtol of the output's RMS."""
    size = float(expected.double().square().mean().sqrt())
    torch.testing.assert_close(oracle.double(), expected.double(), rtol=1e-7, atol=1e-9 * size)
    torch.testing.assert_close(result.double(), expected.double(), rtol=rtol, atol=rtol * size)


def averaged_gradients(ranks, parameters):
    """Gradients of the mean over ranks of every rank's mean squared error, in float64."""
    w1, b1, w2, b2 = leaves = [p.double().requires_grad_() for p in parameters]
    losses = []
    for rank in ranks:
        x, y = rank.tensors["X_local"].double(), rank.tensors["y_local"].double()
        prediction = torch.clamp(x @ w1.T + b1, min=0) @ w2.T + b2
        losses.append((prediction - y).pow(2).mean())
    return torch.autograd.grad(torch.stack(losses).mean(), leaves)


@pytest.mark.parametrize("world", [1, 3])
def test_ddp_is_one_adam_step_of_joined_batch(gathered, world):
    ranks = gathered("ddp", world)
    root = ranks[0].tensors
    t = int(root["step"])
    gradients = averaged_gradients(ranks, [root[name] for name in NAMES])
    for index, (name, g) in enumerate(zip(NAMES, gradients, strict=True)):
        mean = 0.9 * root[f"exp_avg_{name}"].double() + 0.1 * g
        square = 0.999 * root[f"exp_avg_sq_{name}"].double() + 0.001 * g * g
        step = (mean / (1 - 0.9**t)) / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
        weight = root[name].double() - 0.5 * step
        for rank in ranks:
            close(rank.result[index], rank.oracle[index], weight, rtol=1e-4)
            close(rank.result[4 + index], rank.oracle[4 + index], mean, rtol=1e-4)
            close(rank.result[8 + index], rank.oracle[8 + index], square, rtol=1e-4)


def int8_values(x, block):
    """Rounds every element to the int8 grid of its block, in a loop over the blocks; returns float64."""
    pieces = []
    for part in x.float().split(block):
        scale = torch.clamp(part.abs().max(), min=1e-8) / torch.tensor(127.0)
        pieces.append(torch.clamp(torch.round(part / scale), -127, 127) * scale)
    return torch.cat(pieces).double()


@pytest.mark.parametrize("world", [1, 2])
def test_quantized_allreduce_averages_what_int8_leaves(gathered, world):
    ranks = gathered("quantized_grad_allreduce", world, M=7, N=333)
    q = ranks[0].sizes.q
    assert ranks[0].sizes.n % q, "the last block should be short"
    expected = sum(int8_values(rank.tensors["flat_grad"], q) for rank in ranks) / world
    plain = sum(rank.tensors["flat_grad"].double() for rank in ranks) / world
    for rank in ranks:
        close(rank.result, rank.oracle, expected, rtol=1e-6)
        assert (rank.result.double() - plain).norm() > 4e-3 * plain.norm()


@pytest.mark.parametrize(("world", "seed"), [(2, 0), (4, 1), (4, 3)])
def test_ring_backward_is_attention_gradient_averaged_over_replicas(gathered, world, seed):
    ranks = gathered("ring_attention_backward_dp", world, seed=seed)
    sizes = ranks[0].sizes
    causal, scaled = ranks[0].tensors["mode"].tolist()
    scale = (1.5 if scaled else 1.0) / math.sqrt(sizes.d)
    found = []
    for replica in range(sizes.dp):
        members = ranks[replica * sizes.cp : (replica + 1) * sizes.cp]
        q, k, v, dout = (
            torch.cat([m.tensors[name] for m in members], dim=1).double().transpose(1, 2)
            for name in ("q", "k", "v", "dout")
        )
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        out = functional.scaled_dot_product_attention(*leaves, is_causal=bool(causal), scale=scale)
        saved = torch.cat([m.tensors["out"] for m in members], dim=1).double().transpose(1, 2)
        torch.testing.assert_close(saved, out.detach(), rtol=1e-5, atol=1e-5)
        gradients = torch.autograd.grad(out, leaves, dout)
        found.append([g.transpose(1, 2).chunk(sizes.cp, dim=1) for g in gradients])
    for rank in ranks:
        c = rank.rank % sizes.cp
        for index in range(3):
            expected = sum(replica[index][c] for replica in found) / sizes.dp
            # out and softmax_lse were saved in float32, so the oracle differs from true gradients by their rounding.
            torch.testing.assert_close(rank.oracle[index], expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(rank.result[index].double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_contrastive_loss_sums_over_all_texts(gathered, world):
    ranks = gathered("openclip_contrastive_loss", world, M=24, N=32)
    texts = torch.cat([rank.tensors["text_features"] for rank in ranks]).double()
    for rank in ranks:
        image = rank.tensors["image_features"].double()
        scale, bias = float(rank.tensors["logit_scale"]), float(rank.tensors["logit_bias"])
        logits = scale * image @ texts.T + bias
        rows = image.shape[0]
        matching = torch.arange(texts.shape[0])[None] == rank.rank * rows + torch.arange(rows)[:, None]
        expected = torch.log1p(torch.exp(torch.where(matching, -logits, logits))).sum() / rows
        close(rank.result, rank.oracle, expected)
