"""Inputs of problem 77: queries and packed keys and values of several token ranges, sharded within each
range.
"""

from collections.abc import Callable

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """query [R*block, heads, Dh], key_value [R*block, kv_heads, 2*Dh], both N(0, 1), and k_ranges [R, 2]
    int64.

    Except in upstream's distribution queries are multiplied by 2.5, so that attention prefers some keys.
    Range i attends to itself and to the window - 1 ranges before it.
    """
    s = setting.sizes
    if s.heads % s.kv_heads:
        raise SizesRefused(f"{s.kv_heads} kv heads do not divide {s.heads} query heads (on {setting.world} ranks)")
    query = setting.randn(s.R * s.block, s.heads, s.Dh)
    if setting.distribution != "upstream":
        query = query * 2.5
    last = torch.arange(1, s.R + 1, device=setting.device) * s.tokens
    first = (last - s.window * s.tokens).clamp(min=0)
    return {
        "query": query,
        "key_value": setting.randn(s.R * s.block, s.kv_heads, 2 * s.Dh),
        "k_ranges": torch.stack((first, last), dim=1),
    }


def oracle(
    tensors: dict[str, torch.Tensor], setting: RankSetting, solution: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """The baseline in float64, one head a rank at a time: all heads at once take 26 GiB of scores a range (paper, one rank)."""
    s = setting.sizes
    query, key_value = tensors["query"].double(), tensors["key_value"].double()
    each = s.heads // setting.world
    parts = []
    for number in range(each):
        heads = [rank * each + number for rank in range(setting.world)]
        given = query[:, heads], key_value[:, [head * s.kv_heads // s.heads for head in heads]], tensors["k_ranges"]
        parts.append(solution(*given, s.R, s.tokens, setting.groups["world"]))
    return torch.stack(parts, dim=2).flatten(1, 2)
