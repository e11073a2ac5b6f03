"""Expert-parallel MoE forward with LoRA: route, dispatch, gated MLP with low-rank branches, combine."""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.shared.moe import moe_forward, swiglu


def _adapted(x: torch.Tensor, projection: torch.nn.Linear, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """projection(x) + (x Aᵀ) Bᵀ for x [R, in], A [r, in], B [out, r]."""
    return projection(x) + F.linear(F.linear(x, a), b)


@torch.no_grad()
def solution(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    lora_gate_A: torch.Tensor,
    lora_gate_B: torch.Tensor,
    lora_up_A: torch.Tensor,
    lora_up_B: torch.Tensor,
    lora_down_A: torch.Tensor,
    lora_down_B: torch.Tensor,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """hidden_states [.., H] (T tokens), gate_weight [E, H], gate_bias [E]; projections H -> I, H -> I, I -> H with biases.

    Each projection p has factors A [r, in] and B [out, r] and becomes p(x) + (x Aᵀ) Bᵀ. Returns [T, H]: for every token the
    sum over its top_k experts of the router's probability times the owner's MLP.
    """
    gate = partial(_adapted, projection=gate_proj, a=lora_gate_A, b=lora_gate_B)
    up = partial(_adapted, projection=up_proj, a=lora_up_A, b=lora_up_B)
    down = partial(_adapted, projection=down_proj, a=lora_down_A, b=lora_down_B)
    expert = partial(swiglu, gate_proj=gate, up_proj=up, down_proj=down)
    return moe_forward(hidden_states, gate_weight, gate_bias, expert, num_experts, top_k, group)
