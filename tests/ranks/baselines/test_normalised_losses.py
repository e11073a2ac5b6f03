"""Compares globally normalised losses with their definitions, computed on one process from all ranks' inputs."""

import pytest
import torch
from torch.nn.functional import linear


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (3, 1), (4, 3)])
def test_grad_acc_loss_is_token_weighted_mean(gathered, world, seed):
    ranks = gathered("grad_acc_loss", world, seed=seed)
    losses = [rank.tensors["loss"].double() for rank in ranks]
    counts = [int(rank.tensors["local_valid_tokens"]) for rank in ranks]
    assert (0 in counts) == (world > 1)
    assert all(torch.isnan(loss) == (count == 0) for loss, count in zip(losses, counts, strict=True))
    leaves = [torch.nan_to_num(loss).requires_grad_() for loss in losses]
    total = sum(leaf * count for leaf, count in zip(leaves, counts, strict=True))
    normalized = total / sum(counts)
    g_n = ranks[0].tensors["grad_normalized_loss"].double()
    g_s = ranks[0].tensors["grad_loss_sum"].double() * ranks[0].tensors["has_grad_loss_sum"]
    gradients = torch.autograd.grad((normalized, total), leaves, (g_n, g_s))
    for rank, gradient in zip(ranks, gradients, strict=True):
        for got, oracle, expected in zip(rank.result, rank.oracle, (normalized, total, gradient), strict=True):
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), expected.detach(), rtol=1e-6, atol=0)
            torch.testing.assert_close(oracle, expected.detach())


def _one_rank(tensors):
    """Per-token values in float64 by definition: log-probability, logarithm of the ratio, validity."""
    logits = linear(tensors["hidden_states"].double(), tensors["weight"].double())
    labels, valid = tensors["labels"], tensors["labels"] != -100
    picked = logits.gather(1, labels.clamp(min=0)[:, None]).squeeze(1)
    logprob = torch.where(valid, picked - torch.log(logits.exp().sum(dim=1)), 0.0)
    delta = (logprob - tensors["old_logprobs"].double()).clamp(-20, 20)
    return logprob, torch.where(valid, delta, 0.0), valid


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (2, 1), (3, 3)])
def test_importance_sampling_loss_matches_its_definition(gathered, world, seed):
    ranks = gathered("importance_sampling_loss", world, seed=seed, M=24, V=200)
    parts = [_one_rank(rank.tensors) for rank in ranks]
    logprob, delta, valid = (torch.cat(column) for column in zip(*parts, strict=True))
    advantage = torch.cat([rank.tensors["advantages"] for rank in ranks]).double()
    assert any(not bool(part[2].any()) for part in parts) == (world > 1 and seed % 4 == 3)
    ratio, count = delta.exp(), int(valid.sum())
    loss = -(ratio * advantage)[valid].sum() / count
    metrics = torch.stack(
        [
            ratio[valid].mean(),
            ratio[valid].min(),
            ratio[valid].max(),
            (ratio - delta - 1)[valid].mean(),
            -logprob[valid].mean(),
        ]
    )
    for rank, (own_logprob, own_delta, own_valid) in zip(ranks, parts, strict=True):
        token_loss = torch.where(own_valid, -own_delta.exp() * rank.tensors["advantages"].double(), 0.0)
        expected = (loss, None, own_logprob, token_loss, metrics)
        assert rank.result[1] is None
        for index in (0, 2, 3, 4):
            torch.testing.assert_close(rank.oracle[index], expected[index])
            torch.testing.assert_close(rank.result[index].double(), expected[index], rtol=2e-5, atol=1e-6)
