"""Linear layers around tensors that exist already."""

import torch
from torch import nn


def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    """nn.Linear whose parameters are these tensors themselves: weight [out, in], bias [out] or None. Nothing is copied."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer
