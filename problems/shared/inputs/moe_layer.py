"""Inputs of the whole MoE layers: tokens, a router, and one gated MLP a rank."""

import math

import torch
from torch import nn

from problems.setting import RankSetting

HOT_BIAS = 1.5
EMPTY_BIAS = -30.0
_ATTEMPTS = 64
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def draw_layer(setting: RankSetting, skewed: bool) -> dict[str, torch.Tensor]:
    """hidden_states [M, N], the router gate_weight [E, N] and gate_bias [E], and the weights and biases of three projections.

    Meaningful: one router for all ranks, logits of standard deviation 2, tokens whose choice hangs on rounding drawn
    anew, projections that keep the variance. With `skewed` one expert is hot and one is never chosen.
    Upstream's: everything per rank, N(0, 1), projections initialised as nn.Linear does.
    """
    s = setting.sizes
    tensors = {"hidden_states": setting.randn(s.M, s.N)}
    if setting.distribution == "upstream":
        tensors["gate_weight"] = setting.randn(s.E, s.N)
        tensors["gate_bias"] = setting.randn(s.E)
    else:
        tensors["gate_weight"] = setting.randn(s.E, s.N, shared=True) * (2 / math.sqrt(s.N))
        tensors["gate_bias"] = setting.randn(s.E, shared=True) * 0.1
        if skewed and s.E - 1 > s.K:
            _skew(tensors["gate_bias"], setting)
        _settle(tensors, setting)
    for name, (rows, columns) in zip(PROJECTIONS, ((s.I, s.N), (s.I, s.N), (s.N, s.I)), strict=True):
        if setting.distribution == "upstream":
            bound = 1 / math.sqrt(columns)
            weight, bias = (setting.rand(rows, columns, dtype=torch.float32), setting.rand(rows, dtype=torch.float32))
            tensors[f"{name}_weight"] = ((2 * weight - 1) * bound).to(setting.dtype)
            tensors[f"{name}_bias"] = ((2 * bias - 1) * bound).to(setting.dtype)
        else:
            tensors[f"{name}_weight"] = setting.randn(rows, columns) * math.sqrt(2 / columns)
            tensors[f"{name}_bias"] = setting.randn(rows) * 0.1
    return tensors


def _linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    """nn.Linear whose parameters are these tensors themselves: weight [out, in], bias [out] or None. Nothing is copied."""
    layer = nn.Linear.__new__(nn.Linear)  # nn.Linear() draws initial parameters, which takes 0.2 ms
    nn.Module.__init__(layer)
    layer.out_features, layer.in_features = weight.shape
    layer.weight = nn.Parameter(weight)
    layer.register_parameter("bias", None if bias is None else nn.Parameter(bias))
    return layer


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, nn.Linear]:
    """The three projections."""
    return {name: _linear(tensors[f"{name}_weight"], tensors[f"{name}_bias"]) for name in PROJECTIONS}


def _skew(bias: torch.Tensor, setting: RankSetting) -> None:
    """Makes one expert of the router hot and another one empty, the same on all ranks."""
    experts = bias.numel()
    hot = setting.randint(0, experts, (1,), shared=True)
    empty = (hot + setting.randint(1, experts, (1,), shared=True)) % experts
    bias[hot] += HOT_BIAS
    bias[empty] = EMPTY_BIAS


def _settle(tensors: dict[str, torch.Tensor], setting: RankSetting) -> None:
    """Draws tokens anew until none of them chooses its K-th expert by less than bfloat16 rounding can turn over."""
    s = setting.sizes
    if s.K >= s.E:
        return
    tokens = tensors["hidden_states"]
    weight, bias = tensors["gate_weight"].double(), tensors["gate_bias"].double()
    pending = torch.arange(s.M, device=tokens.device)
    for _ in range(_ATTEMPTS):
        logits = tokens[pending].double() @ weight.t() + bias
        last, following = logits.topk(s.K + 1, dim=1).values[:, -2:].unbind(1)
        pending = pending[last - following < (1 + last.abs()) / 64]
        if pending.numel() == 0:
            return
        tokens[pending] = setting.randn(pending.numel(), s.N)
