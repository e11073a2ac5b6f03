"""House kernel: MoE layer with one expert per rank; tokens leave before routing, results travel beside products."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.experts import moe_layer

symm.reserve(3 << 30)  # tokens of all ranks and their results, of the largest sizes

LARGE = 16 << 20
"""Bytes of a rank's tokens from which they are sent beside products."""


@torch.no_grad()
def solution(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """hidden_states [.., H] (T tokens), gate_weight [E, H], gate_bias [E]; projections H -> I, H -> I, I -> H with biases.

    Returns [T, H]: for every token the sum over its top_k experts of the router's probability times the owner's MLP.
    """
    mlp = (gate_proj.weight, gate_proj.bias), (up_proj.weight, up_proj.bias), (down_proj.weight, down_proj.bias)
    return moe_layer(hidden_states, gate_weight, gate_bias, mlp, num_experts, top_k, symm.team(group), LARGE)
