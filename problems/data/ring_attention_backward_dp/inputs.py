"""Inputs of problem 57: this rank's piece of attention's forward, and the gradient of its output."""

import torch

from problems.setting import RankSetting, grid
from problems.shared.ring import arguments, attend, draw_mode, widen

__all__ = ["arguments", "draw"]

READ_BY_ARGUMENTS = ("mode",)


def layout(world: int) -> dict[str, list[list[int]]]:
    """rank = g·cp + c with dp = min(2, W) replicas g."""
    return grid(world, world // min(2, world), "cp", "dp")


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """dout, q, k, v, out [B, S, H, d], softmax_lse [B, H, S] float32 and the mode.

    Upstream computes out and softmax_lse from the local keys alone and never masks. Meaningful: both come from the whole
    sequence of the replica under the mode in use, so that the results are true gradients.
    """
    s = setting.sizes
    replica, c = divmod(setting.rank, s.cp)
    q, dout = setting.randn(s.B, s.S, s.H, s.d), setting.randn(s.B, s.S, s.H, s.d)
    mode = draw_mode(setting, causal=False)
    scale, causal = arguments({"mode": mode}, setting).values()
    # Keys and values of all replicas and context ranks: [2, dp, cp, B, S, H, d].
    both = setting.randn(2, s.dp, s.cp, s.B, s.S, s.H, s.d, shared=True)[:, replica]
    k, v = both[:, c].clone()
    if setting.distribution == "upstream":
        seen = both[:, c : c + 1]
        causal = False
    else:
        seen = both[:, : c + 1] if causal else both
    keys, values = seen.transpose(1, 2).flatten(2, 3)
    offset = keys.shape[1] - s.S
    query, wide_keys, wide_values = widen(q), widen(keys), widen(values)
    usual = s.d**-0.5 if scale is None else scale
    if causal:
        # The rank's own keys are the last S of those it sees.
        products = (query @ wide_keys.transpose(-1, -2)) * usual
        later = torch.ones_like(products[0, 0], dtype=torch.bool).triu_(1 + offset)
        products.masked_fill_(later, float("-inf"))
        lse = torch.logsumexp(products, dim=-1, keepdim=True)
        out = (products - lse).exp() @ wide_values
    else:
        out, lse = attend(query, wide_keys, wide_values, usual, diagonal=False)
    return {
        "dout": dout,
        "q": q,
        "k": k,
        "v": v,
        "out": out.transpose(1, 2).to(setting.dtype),
        "softmax_lse": lse[..., 0],
        "mode": mode,
    }
