"""Inputs of problem 79: clustered unit vectors whose scalar products are exact, whatever the order of
additions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from problems.setting import RankSetting, SizesRefused


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """test_features_rank [Q, D], train_features_rank_T [D, T] of the run dtype, train_labels_rank [1, T] int64.

    Upstream: unit-normalised bfloat16 noise, labels (global column) mod 1000. Otherwise 64 clusters shared by
    all ranks, and entries rounded to multiples of 1/256, in float32 of 1/4096: products then add up exactly in
    float32, so that every correct kernel sees the same similarities. Labels are drawn from 0..999 in every second trial; in the
    others all columns have different ones, in random order.
    """
    s = setting.sizes
    if s.k > s.T:
        raise SizesRefused(f"k={s.k} neighbours need at least as many training features per rank, not {s.T}")
    first = setting.rank * s.T
    if setting.distribution == "upstream":
        test = _unit(setting.randn(s.Q, s.D, dtype=torch.bfloat16))
        train = _unit(setting.randn(s.T, s.D, dtype=torch.bfloat16))
        labels = (first + torch.arange(s.T, device=setting.device)) % 1000
    else:
        centres = _unit(setting.randn(64, s.D, shared=True, dtype=torch.float32))

        # In float32 a bfloat16 is not enough for an entry. Vectors are a little shorter than 1 there, so that every sum of
        # their products is a multiple of 2^-24 below 1.
        steps, length = (4096, 0.98) if setting.dtype == torch.float32 else (256, 1.0)

        def clustered(rows: int) -> torch.Tensor:
            near = centres[setting.randint(0, 64, (rows,))]
            noise = setting.randn(rows, s.D, dtype=torch.float32) * s.D**-0.5
            return (_unit(near + noise) * length * steps).round().clamp(1 - steps, steps - 1) / steps

        test, train = clustered(s.Q), clustered(s.T)
        if setting.trial % 2:
            labels = setting.randint(0, 1000, (s.T,))
        else:
            labels = setting.permutation(setting.world * s.T, shared=True)[first : first + s.T]
    return {
        "test_features_rank": test.to(setting.dtype),
        "train_features_rank_T": train.to(setting.dtype).t().contiguous(),
        "train_labels_rank": labels[None],
    }


@dataclass(frozen=True)
class Edges:
    """Where the k nearest of each own query end, and which columns may stand there."""

    value: torch.Tensor
    """[Q, 1]: the k-th largest similarity, in the run dtype."""
    tied: torch.Tensor
    """[Q, n] int64, ascending: labels of the columns that tie for the last places; NONE fills the rows up."""
    above: torch.Tensor
    """[Q, m] int64, ascending: labels of the columns that are nearer than those; NONE fills the rows up."""


NONE, TIED, JUNK = torch.iinfo(torch.int64).max, -1, -2
"""No labels: these are numbers from 0."""


def facts(tensors: dict[str, torch.Tensor], setting: RankSetting, solution: Callable[..., Any]) -> Edges:
    """The edges of the own queries, from all ranks' columns (collective).

    In the published distribution sums depend on the order of additions: what is within four units in the last place of the
    k-th similarity ties with it there.
    """
    test, train_T, labels = (
        tensors[f"{name}"] for name in ("test_features_rank", "train_features_rank_T", "train_labels_rank")
    )
    similarities, _ = solution(test, train_T, labels, setting.sizes.k, setting.groups["world"])
    value = similarities[:, -1:].contiguous()
    queries, values = (_from_all_ranks(x, setting) for x in (test, value))
    found = queries @ train_T
    eps = torch.finfo(found.dtype).eps if setting.distribution == "upstream" else 0.0
    near = 4 * eps * values.abs()
    tied = (found >= values - near) & (found <= values + near)
    labels = labels.view(-1)
    return Edges(value, *(_to_owners(chosen, labels, setting) for chosen in (tied, found > values + near)))


def _from_all_ranks(rows: torch.Tensor, setting: RankSetting) -> torch.Tensor:
    """rows [Q, n] of each rank -> [W * Q, n]"""
    gathered = rows.new_empty(setting.world * rows.shape[0], rows.shape[1])
    dist.all_gather_into_tensor(gathered, rows.contiguous(), group=setting.groups["world"])
    return gathered


def _to_owners(chosen: torch.Tensor, labels: torch.Tensor, setting: RankSetting) -> torch.Tensor:
    """chosen [W * Q, T] bool, labels [T] -> [Q, n]: the labels of the columns that all ranks chose, ascending, NONE behind."""
    group = setting.groups["world"]
    counts = chosen.sum(dim=1)
    most = counts.max()
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
    rows, columns = chosen.nonzero(as_tuple=True)
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    sent = labels.new_full((len(counts), max(1, int(most))), NONE)
    sent[rows, place] = labels[columns]
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received.view(setting.world, -1, sent.shape[1]).transpose(0, 1).flatten(1).sort(dim=1).values.contiguous()


def canonical(outputs: Any, setting: RankSetting, edges: Edges) -> Any:
    """Labels in an order that does not depend on ties; TIED stands for each that may stand in the last places.

    In the published distribution labels are taken as a set: those of all columns above the edge, and any of those at it.
    """
    if type(outputs) is not tuple or len(outputs) != 2 or any(type(x) is not torch.Tensor for x in outputs):
        return outputs
    similarities, labels = outputs
    if similarities.dim() != 2 or similarities.shape != labels.shape or not similarities.numel():
        return outputs
    ascending, by_label = labels.masked_fill((labels < 0) | (labels == NONE), JUNK).sort(dim=1)
    if setting.distribution == "upstream":
        before, number = _counts(edges.above, ascending), _occurrence(ascending)
        tied = (number >= before) & (number < before + _counts(edges.tied, ascending))
        return similarities, ascending.masked_fill(tied, TIED).sort(dim=1).values
    order = similarities.gather(1, by_label).argsort(dim=1, descending=True, stable=True)
    ordered = ascending.gather(1, order)
    last = similarities == edges.value
    candidates, place = ordered.masked_fill(~last, NONE).sort(dim=1)
    tied = _occurrence(candidates) < _counts(edges.tied, candidates)
    tied = torch.zeros_like(last).scatter(1, place, tied) & last
    return similarities, ordered.masked_fill(tied, TIED)


def _occurrence(ascending: torch.Tensor) -> torch.Tensor:
    """How many equal elements stand before each of its row."""
    places = torch.arange(ascending.shape[1], device=ascending.device)
    return places - torch.searchsorted(ascending, ascending)


def _counts(pool: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """How often each label is in the pool of its row; both [Q, any] and ascending."""
    return torch.searchsorted(pool, labels, right=True) - torch.searchsorted(pool, labels)
