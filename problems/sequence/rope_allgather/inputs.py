"""Inputs of problem 17: a sequence shard of queries and keys with its rotary tables."""

import torch

from problems.setting import RankSetting, SizesRefused


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """q_local, k_local [B, S, heads, dim] ~ N(0, 1); cos_local, sin_local [B, S, dim].

    In every other call the tables are real ones, of consecutive positions over the ranks with an offset for
    each batch entry; in between, and upstream, they are N(0, 1), so that the two halves of a table differ.
    """
    s = setting.sizes
    if s.heads % setting.world or s.dim % 2:
        raise SizesRefused(f"heads={s.heads} must divide by {setting.world} ranks, and dim={s.dim} must be even")
    shape = (s.B, s.S, s.heads, s.dim)
    tensors = {"q_local": setting.randn(*shape), "k_local": setting.randn(*shape)}
    if setting.distribution == "upstream" or setting.trial % 2:
        tables = setting.randn(s.B, s.S, s.dim), setting.randn(s.B, s.S, s.dim)
    else:
        offset = setting.randint(0, 4096, (s.B, 1), shared=True)
        position = offset + setting.rank * s.S + torch.arange(s.S, device=setting.device)
        turn = torch.arange(0, s.dim, 2, dtype=torch.float64, device=setting.device) / s.dim
        angle = (position.unsqueeze(-1) / 10000.0**turn).repeat(1, 1, 2)
        tables = angle.cos().to(setting.dtype), angle.sin().to(setting.dtype)
    return tensors | {"cos_local": tables[0], "sin_local": tables[1]}
