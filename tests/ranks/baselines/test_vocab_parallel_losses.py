"""Compares vocabulary-parallel losses with those of whole rows on one process."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from problems.setting import RankSetting
from problems.shared.truncated_sampling import draw_chunk

SEEDS = [0, 1, 2, 3]
"""One seed for every combination of the two filters, top-k and top-p."""


def whole_rows(ranks, name="vocab_parallel_logits"):
    return torch.cat([rank.tensors[name] for rank in ranks], dim=-1).double().flatten(0, 1)


@pytest.mark.parametrize("world", [1, 4])
def test_cross_entropy_of_the_joined_vocabulary(gathered, world):
    ranks = gathered("vocab_parallel_cross_entropy_loss", world)
    target = ranks[0].tensors["target"]
    expected = functional.cross_entropy(whole_rows(ranks), target.flatten(), reduction="none").view(target.shape)
    for rank in ranks:
        torch.testing.assert_close(rank.oracle["returned"], expected)
        torch.testing.assert_close(rank.result["returned"].double(), expected, rtol=1e-5, atol=1e-4)


def kept_set(row, k, p):
    """The filter's definition for one row of float64 logits, entry by entry."""
    kept = torch.ones_like(row, dtype=torch.bool)
    if k is not None:
        kept = row >= row.sort(descending=True).values[k - 1]
    if p < 1:
        weight = torch.where(kept, row.exp(), 0.0)
        weight = weight / weight.sum()
        running = 0.0
        survivors = torch.zeros_like(kept)
        for column in row.argsort().tolist():
            running += float(weight[column])
            survivors[column] = running > 1 - p
        survivors[row.argmax()] = True
        kept &= survivors
    return kept


def filters(rank):
    k, use_p = rank.tensors["mode"].tolist()
    return k or None, 0.9 if use_p else 1.0


@pytest.mark.parametrize("name", ["vocab_parallel_log_prob_topk", "vocab_parallel_log_prob_topk_chunked"])
@pytest.mark.parametrize("seed", SEEDS)
def test_log_probability_under_the_filter(gathered, name, seed):
    ranks = gathered(name, 2, seed=seed)
    rows, target = whole_rows(ranks), ranks[0].tensors["target"]
    expected = []
    for row, y in zip(rows, target.flatten().tolist(), strict=True):
        kept = kept_set(row, *filters(ranks[0]))
        expected.append(row[y] - row[kept].logsumexp(0) if kept[y] else torch.tensor(-torch.inf).double())
    expected = torch.stack(expected).view(target.shape)
    for rank in ranks:
        torch.testing.assert_close(rank.oracle, expected)
        torch.testing.assert_close(rank.result.double(), expected, rtol=1e-4, atol=1e-4)
    assert int(expected.isfinite().sum()) > expected.numel() // 2


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_is_that_of_the_filtered_log_probability(gathered, seed):
    ranks = gathered("vocab_parallel_log_prob_topk_chunked_backward", 2, seed=seed)
    rows = whole_rows(ranks).requires_grad_()
    target = ranks[0].tensors["target"].flatten()
    weight = ranks[0].tensors["grad_output"].double().flatten()
    kept = torch.stack([kept_set(row, *filters(ranks[0])) for row in rows.detach()])
    # If the filter drops the target, the gradient is that of log p = z_y - logsumexp with z_y held constant.
    inside = kept.gather(1, target[:, None])[:, 0]
    picked = rows.gather(1, target[:, None])[:, 0]
    normaliser = rows.masked_fill(~kept, -torch.inf).logsumexp(-1)
    value = torch.where(inside, picked, picked.detach()) - normaliser
    (expected,) = torch.autograd.grad((weight * value).sum(), rows)
    for rank, shard in zip(ranks, expected.chunk(2, dim=-1), strict=True):
        torch.testing.assert_close(rank.oracle.flatten(0, 1), shard)
        torch.testing.assert_close(rank.result.flatten(0, 1).double(), shard, rtol=1e-4, atol=1e-6)


def test_chunks_may_end_short_or_exceed_sequence():
    setting = RankSetting(0, 2, SimpleNamespace(S=16, chunk=4), torch.float32, torch.device("cpu"))
    sizes = {int(draw_chunk(setting.replace(trial=trial))) for trial in range(3)}
    assert sizes == {4, 10, 18}
