"""Inputs of problem 75: one sequence shard with all heads; decay parameters of the own heads only."""

import torch

from problems.setting import RankSetting
from problems.shared.delta_rule import louder


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """q, k [B, S, heads, K], v [B, S, value_heads, V], gate, beta [B, S, value_heads]; a_log, dt_bias in bfloat16.

    Upstream: all N(0, 1) (beta after a sigmoid), under which half of the state is lost per token. Otherwise every value head
    forgets within a number of tokens of its own, from a quarter of the sequence to twice the sequence, beta is the sigmoid of
    N(-3, 1), and v ~ N(0, 16^2), a few tokens 8 times as much. So the first token still counts for the last. Over all value
    heads a_log lies between 0 and 0.2 and dt_bias between -0.1 and 0.1: upstream's evenly, ours at random.
    """
    s, device = setting.sizes, setting.device
    tensors = {name: setting.randn(s.B, s.S, s.heads, s.K) for name in ("q", "k")}
    tensors["v"] = setting.randn(s.B, s.S, s.value_heads, s.V)
    tensors["gate"] = setting.randn(s.B, s.S, s.value_heads)
    logits = setting.randn(s.B, s.S, s.value_heads, dtype=torch.bfloat16)
    if setting.distribution != "upstream":
        logits -= 3
        kept = setting.world * s.S / 4 * 8 ** setting.rand(s.value_heads, shared=True, dtype=torch.float32)
        tensors["gate"] = (0.3 * tensors["gate"] + torch.expm1(1 / kept).log()).to(setting.dtype)
        tensors["v"] = tensors["v"] * louder(setting, s.B, s.S, s.value_heads)
    tensors["beta"] = torch.sigmoid(logits).to(setting.dtype)
    for name, low, high in (("a_log", 0.0, 0.2), ("dt_bias", -0.1, 0.1)):
        if setting.distribution == "upstream":
            everyone = torch.linspace(low, high, s.value_heads, device=device)
        else:
            everyone = low + (high - low) * setting.rand(s.value_heads, shared=True, dtype=torch.float32)
        tensors[name] = everyone.to(torch.bfloat16).chunk(setting.world)[setting.rank].clone()
    return tensors
