"""The cut of truncation agrees entry by entry with the cut of whole rows, also where many logits are equal."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from sandbox.kit.blocks.truncation import find_cut

ROWS, COLUMNS = 24, 60
FILTERS = [(7, None), (7, 0.8317), (None, 0.83), (0, 1.0), (100, 0.3123), (1, 0.5031), (None, 1e-9)]
"""(top_k, top_p). No top_p lies exactly on the boundary between two equal logits."""


def kept_of_whole_rows(logits: torch.Tensor, top_k: int | None, top_p: float | None) -> torch.Tensor:
    """bool [n, V]: the kept entries by definition. Of equal entries, those in the first columns are dropped first."""
    kept = torch.ones_like(logits, dtype=torch.bool)
    if top_k:
        smallest = logits.topk(min(top_k, logits.shape[1]), dim=1).values[:, -1:]
        kept = logits >= smallest
    if top_p is not None and top_p < 1:
        weights = logits.double().masked_fill(~kept, -torch.inf).softmax(dim=1)
        order = torch.where(kept, logits.double(), -torch.inf).sort(dim=1, stable=True).indices
        stays = weights.gather(1, order).cumsum(dim=1) > 1 - top_p
        stays[:, -1] = True
        kept &= torch.zeros_like(kept).scatter_(1, order, stays)
    return kept


def wrong_cuts(find_cut: Callable[..., Any], rank: int, world: int, dtype: torch.dtype, columns: int) -> list[str]:
    generator = torch.Generator().manual_seed(3)
    # Few different values: runs of equal logits lie across the cut in nearly every row.
    whole = torch.randint(-3, 4, (ROWS, columns), generator=generator) * 0.7071
    whole[0] = 0.5  # all are equal
    target = torch.randint(0, columns, (ROWS,), generator=generator)
    whole[1] = torch.where(torch.arange(columns) == target[1], 208, 200)  # the target is nearly sure
    whole = whole.to(dtype)
    width = columns // world
    mine = slice(rank * width, (rank + 1) * width)
    wrong = []
    for top_k, top_p in FILTERS:
        kept = kept_of_whole_rows(whole, top_k, top_p)
        cut = find_cut(whole[:, mine], target, dist.group.WORLD, top_k, top_p)
        local = whole[:, mine].float()
        equal = local == cut.least[:, None]
        here = (local > cut.least[:, None]) | (equal & (equal.cumsum(dim=1) > cut.dropped[:, None]))
        expected = whole.double().masked_fill(~kept, -torch.inf).logsumexp(dim=1)
        picked = whole.float().gather(1, target[:, None])[:, 0]
        log_probability = torch.where(picked >= cut.least, (picked - expected).float(), -torch.inf)
        checks = {
            "kept": torch.equal(here, kept[:, mine]),
            "log_sum": torch.allclose(cut.log_sum.double(), expected, rtol=1e-6, atol=1e-6),
            "target": torch.equal(cut.target, picked),
            "log_probability": torch.allclose(cut.log_probability, log_probability, rtol=1e-5, atol=1e-6),
        }
        wrong += [f"{name} with {top_k}, {top_p}" for name, right in checks.items() if not right]
    return wrong


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_cut_is_that_of_whole_rows(in_ranks, world, dtype):
    def work(rank: int, world: int) -> list[str]:
        return wrong_cuts(find_cut, rank, world, dtype, COLUMNS)

    assert in_ranks(world, work) == [[]] * world
