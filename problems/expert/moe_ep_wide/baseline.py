"""MoE forward with two experts a rank: route, dispatch, gated MLP, combine."""

from functools import partial

import torch
import torch.distributed as dist

from problems.shared.moe import moe_forward, swiglu


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
    expert = partial(swiglu, gate_proj=gate_proj, up_proj=up_proj, down_proj=down_proj)
    return moe_forward(hidden_states, gate_weight, gate_bias, expert, num_experts, top_k, group)
