"""Top-k and top-p filters of vocabulary-parallel logits: finds the cut of every row without moving rows.

    from sandbox.kit.blocks.truncation import find_cut

    cut = find_cut(logits, target, group, top_k=50, top_p=0.9)    # logits [n, V/W], target [n]

On GPUs a cut is one launch (`candidates`). With top-k every rank sends its k largest logits, and all ranks merge the same W·k
candidates in one exchange. With top-p alone, library calls search the cut in the ranks' sorted shards, 16 parts at a time, with a
few exchanged numbers per row.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks import candidates

PROBES = 16
"""Parts into which a round of the search divides the remaining range of keys."""


@dataclass(frozen=True)
class Cut:
    """The cut of n rows, the same on all ranks except `dropped`.

    Logits above `least` are kept, and those equal to it except the first `dropped` of this rank, in the order of the
    columns.
    """

    least: torch.Tensor
    """[n] float32: the smallest logit that is kept."""
    log_sum: torch.Tensor
    """[n] float32: the logarithm of the sum of the kept logits' exponentials."""
    target: torch.Tensor
    """[n] float32: the target's logit."""
    log_probability: torch.Tensor
    """[n] float32: the target's log probability; -infinity if its logit is below `least`."""
    dropped: torch.Tensor
    """[n] int64: number of this rank's logits equal to `least` that are dropped."""


def find_cut(
    logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None, top_k: int | None, top_p: float | None
) -> Cut:
    """The cut of logits [n, V/W] with target [n] int64, both of the same rows on all ranks.

    logits: this rank's columns of the vocabulary, from rank·V/W on. top_k keeps all logits not below the k-th largest
    (None, 0: all). top_p then drops those whose running sum of the softmax in ascending order does not exceed 1 -
    top_p, though never the largest (None, 1: none). Sums are float64.
    """
    k = top_k or 0
    share = 0.0 if top_p is None or top_p >= 1 else 1 - top_p
    if candidates.serves(logits, dist.get_world_size(group), k):
        return Cut(*candidates.cut_rows(logits, target, symm.team(group), k, share))
    columns = logits.shape[1]
    column = target - dist.get_rank(group) * columns
    here = (column >= 0) & (column < columns)
    picked = logits.gather(1, column.masked_fill(~here, 0)[:, None])[:, 0].double()
    picked = picked.masked_fill(~here, -torch.inf)
    if k > 0:
        return _of_candidates(logits, picked, group, k, share)
    return _of_everything(logits, picked, group, share)


def _cut(least: torch.Tensor, log_sum: torch.Tensor, target: torch.Tensor, dropped: torch.Tensor) -> Cut:
    log_probability = torch.where(target >= least, (target - log_sum).float(), -torch.inf)  # rounded last
    return Cut(least, log_sum.float(), target, log_probability, dropped)


def _gathered(mine: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The tensors of all ranks: [...] -> [W, ...]."""
    gathered = mine.new_empty(dist.get_world_size(group), *mine.shape)
    dist.all_gather_into_tensor(gathered, mine.contiguous(), group=group)
    return gathered


def _own_dropped(dropped: torch.Tensor, ties: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """This rank's part of the [n] ties that are dropped, the first ones of all ranks' ties [W, n]."""
    rank = dist.get_rank(group)
    before = ties[:rank].sum(dim=0)
    return torch.minimum((dropped - before).clamp(min=0), ties[rank]).long()


def _of_candidates(
    logits: torch.Tensor, picked: torch.Tensor, group: dist.ProcessGroup | None, top_k: int, share: float
) -> Cut:
    listed = logits.topk(min(top_k, logits.shape[1]), dim=1).values
    # Entries that equal the last one listed but are not in the list. They may be kept, too.
    last = listed[:, -1:]
    unlisted = (logits == last).sum(dim=1) - (listed == last).sum(dim=1)
    mine = torch.cat((listed.float(), unlisted[:, None].float(), picked[:, None].float()), dim=1)
    gathered = _gathered(mine, group)
    offered, unlisted_of, found = gathered[..., :-2], gathered[..., -2], gathered[..., -1].amax(dim=0)
    merged = offered.transpose(0, 1).flatten(1)
    ascending = merged.topk(min(top_k, merged.shape[1]), dim=1).values.flip(1)
    edge = ascending[:, :1]  # the k-th largest; what equals it stays
    equal = (offered == edge).sum(dim=2) + unlisted_of * (offered[..., -1] == edge[:, 0])
    surplus = equal.sum(dim=0) - (ascending == edge).sum(dim=1)  # entries at the edge beyond k
    largest = ascending[:, -1:].double()
    weights = (ascending.double() - largest).exp()
    weight_of_edge = weights[:, 0]
    running = weights.cumsum(dim=1) + (surplus * weight_of_edge)[:, None]
    limit = share * running[:, -1:]
    dropped = running <= limit
    dropped[:, -1] = False
    # Surplus entries come first in ascending order.
    dropped_surplus = torch.minimum((limit[:, 0] / weight_of_edge).floor(), surplus)
    if share == 0:
        dropped_surplus = torch.zeros_like(dropped_surplus)
    kept = (weights * ~dropped).sum(dim=1) + (surplus - dropped_surplus) * weight_of_edge
    first = dropped.sum(dim=1, keepdim=True)
    least = ascending.gather(1, first)
    least = torch.where((dropped_surplus < surplus)[:, None], edge, least)
    ties = (offered == least).sum(dim=2) + unlisted_of * (offered[..., -1] == least[:, 0])
    dropped_ties = (dropped & (ascending == least)).sum(dim=1) + dropped_surplus * (least == edge)[:, 0]
    log_sum = kept.log() + largest[:, 0]
    return _cut(least[:, 0], log_sum, found, _own_dropped(dropped_ties, ties, group))


def _of_everything(logits: torch.Tensor, picked: torch.Tensor, group: dist.ProcessGroup | None, share: float) -> Cut:
    wide = logits.double()
    peak = wide.amax(dim=1)
    total = (wide - peak[:, None]).exp_().sum(dim=1)
    peaks, totals, picks = _gathered(torch.stack((peak, total, picked)), group).unbind(1)
    largest = peaks.amax(dim=0)
    total = (totals * (peaks - largest).exp()).sum(dim=0)
    found = picks.amax(dim=0).float()
    if share == 0:
        least = torch.full_like(found, -torch.inf)
        none = torch.zeros_like(found, dtype=torch.int64)
        return _cut(least, total.log() + largest, found, none)
    ascending = logits.sort(dim=1).values
    running = (ascending.double() - largest[:, None]).exp_().cumsum(dim=1)
    running = torch.nn.functional.pad(running, (1, 0))  # [n, 1 + V/W]: the mass below each place
    keys = _keys(ascending)
    limit = share * total

    def below(probes: torch.Tensor) -> torch.Tensor:
        """The ranks' mass of keys below each of the probes [n, m]."""
        mass = running.gather(1, torch.searchsorted(keys, probes))
        dist.all_reduce(mass, group=group)
        return mass

    # The cut is the largest key below which no more than `limit` lies. The low half of a 16-bit dtype's keys is zero.
    cut = torch.full_like(keys[:, :1], -(1 << 31))
    steps = torch.arange(1, PROBES, device=keys.device)
    for shift in range(28, 12 if logits.dtype.itemsize == 2 else -4, -4):
        probes = cut + (steps << shift)
        cut = cut + ((below(probes) <= limit[:, None]).sum(dim=1, keepdim=True) << shift)
    cut = torch.minimum(cut, _keys(largest[:, None].to(logits.dtype)))  # the largest stays
    low, high = torch.searchsorted(keys, cut), torch.searchsorted(keys, cut, right=True)
    mine = torch.cat((running.gather(1, low), (high - low).double()), dim=1)
    masses, ties = _gathered(mine, group).unbind(2)
    mass, many = masses.sum(dim=0), ties.sum(dim=0)
    least = _values(cut)[:, 0]
    weight = (least.double() - largest).exp()
    dropped = torch.minimum(((limit - mass) / weight).floor().clamp(min=0), many)
    dropped -= ((dropped == many) & (least == largest)).double()  # one of the largest stays
    kept = total - mass - dropped * weight
    log_sum = kept.log() + largest
    return _cut(least, log_sum, found, _own_dropped(dropped, ties, group))


def _keys(values: torch.Tensor) -> torch.Tensor:
    """int64 keys of 32 bits in the order of the values: of a negative number, all bits but the sign are inverted."""
    bits = (values.float() + 0.0).view(torch.int32)  # -0 becomes 0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()


def _values(keys: torch.Tensor) -> torch.Tensor:
    bits = keys.int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)
