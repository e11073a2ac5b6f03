"""House kernel: MoE layer with LoRA; the low-rank branches are added to the weights, so that the MLP is a plain one.

The MLP multiplies thousands of rows, so one low-rank product per projection costs less than a branch for every row. In
16 bits the sum is rounded once; the baseline rounds both paths and their sum. In float32 the branches stay apart: their own
short sums are more exact than the long ones over merged weights.
"""

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
    mlp = (
        (gate_proj.weight, gate_proj.bias, lora_gate_A, lora_gate_B),
        (up_proj.weight, up_proj.bias, lora_up_A, lora_up_B),
        (down_proj.weight, down_proj.bias, lora_down_A, lora_down_B),
    )
    return moe_layer(hidden_states, gate_weight, gate_bias, mlp, num_experts, top_k, symm.team(group), LARGE)
