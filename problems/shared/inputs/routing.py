"""Which tokens go to which experts: drawing the choices, and the counts and splits that an exchange needs.

Experts lie contiguously on the ranks of a group of W: with E experts, rank g owns the E_l = E / W experts from g·E_l on.
"""

import torch

from problems.setting import RankSetting, SizesRefused


def dispatch(setting: RankSetting) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(this rank's choices [M, K], then the three splits as `splits_of` gives them).

    Meaningful: skewed routing with an empty expert, splits counted from it. Upstream's: uniform routing, and equal cuts that have
    nothing to do with it.
    """
    s, world = setting.sizes, setting.world
    if s.E % world or s.K > s.E:
        raise SizesRefused(f"{world} ranks must divide E={s.E} experts, and K={s.K} may not exceed E")
    if setting.distribution != "upstream":
        everyone = skewed_choices(setting, s.M, s.E, s.K)
        return everyone[setting.rank], *splits_of(count_per_expert(everyone, s.E), setting.rank)
    if s.K * s.M % world:
        raise SizesRefused(f"upstream's equal splits need {world} ranks to divide K·M={s.K * s.M}")
    cut = torch.full((world,), s.K * s.M // world, device=setting.device)
    arriving = even_chunks(s.K * s.M, s.E, setting.device).view(world, -1)
    return uniform_choices(setting, s.M, s.E, s.K), cut, cut, arriving


def skewed_choices(setting: RankSetting, tokens: int, experts: int, top_k: int) -> torch.Tensor:
    """The experts that all ranks' tokens choose: int64 [W, tokens, top_k], distinct per token, the same on every rank.

    Zipf-like over the experts, in another order on every rank. One expert gets no tokens at all, and (W > 1) one rank
    sends nothing to another, wherever enough experts remain to choose from.
    """
    world, device = setting.world, setting.device
    place = setting.rand(world, experts, shared=True, dtype=torch.float32).argsort(dim=1)
    log_weight = -torch.log1p(place.to(torch.float32))
    expert = torch.arange(experts, device=device)
    if experts - 1 >= top_k:
        empty = setting.randint(0, experts, (1,), shared=True)
        log_weight.masked_fill_(expert == empty, -torch.inf)
    local = experts // world
    if world > 1 and experts - local - 1 >= top_k:
        source = setting.randint(0, world, (1,), shared=True)
        target = (source + setting.randint(1, world, (1,), shared=True)) % world
        silent = (torch.arange(world, device=device) == source)[:, None] & (expert // local == target)
        log_weight.masked_fill_(silent, -torch.inf)
    uniform = setting.rand(world, tokens, experts, shared=True, dtype=torch.float32).clamp_(1e-7, 1 - 1e-6)
    return (log_weight[:, None] - torch.log(-torch.log(uniform))).topk(top_k, dim=2).indices


def uniform_choices(setting: RankSetting, tokens: int, experts: int, top_k: int) -> torch.Tensor:
    """This rank's choices, int64 [tokens, top_k]: distinct experts in uniformly random order."""
    return setting.rand(tokens, experts, dtype=torch.float32).argsort(dim=1)[:, :top_k].contiguous()


def one_hot_mask(choices: torch.Tensor, experts: int, dtype: torch.dtype) -> torch.Tensor:
    """[T, K] expert numbers as a mask [E, K, T]: 1 where the k-th choice of token t is expert e."""
    mask = torch.zeros(experts, choices.shape[1], choices.shape[0], dtype=dtype, device=choices.device)
    return mask.scatter_(0, choices.t()[None], 1)


def count_per_expert(choices: torch.Tensor, experts: int) -> torch.Tensor:
    """How often each expert is chosen: [..., T, K] expert numbers -> int64 [..., E]."""
    flat = choices.flatten(-2)
    counts = torch.zeros(*flat.shape[:-1], experts, dtype=torch.int64, device=choices.device)
    return counts.scatter_add_(-1, flat, torch.ones_like(flat))


def splits_of(counts: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What rank's exchange looks like, from the counts [W, E] of all ranks.

    Returns (rows sent to each rank [W], rows received from each rank [W], rows from each rank for each of this rank's
    experts [W, E_l]), int64.
    """
    world = counts.shape[0]
    table = counts.view(world, world, -1)  # source, owner, local expert
    arriving = table[:, rank].contiguous()
    return table[rank].sum(dim=1), arriving.sum(dim=1), arriving


def even_chunks(total: int, parts: int, device: torch.device) -> torch.Tensor:
    """total spread over [parts] cells as evenly as it goes, the first cells taking the remainder; int64."""
    return torch.full((parts,), total // parts, device=device) + (torch.arange(parts, device=device) < total % parts)
