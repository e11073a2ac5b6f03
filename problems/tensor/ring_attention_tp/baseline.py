"""Attention layer: heads over tensor-parallel ranks, the sequence over context-parallel ranks."""

import torch
import torch.distributed as dist

from problems.shared.ring import attention_layer


@torch.no_grad()
def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    tp_group: dist.ProcessGroup | None = None,
    cp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """hidden_states [B, S, D], w_qkv [3·H_l·d, D] with rows (q | k | v, head, d), w_o [D, H_l·d] -> [B, S, D].

    num_heads counts all heads, H_l = num_heads / tp are here. The result is summed over the TP group in the run dtype.
    """
    tp = dist.get_world_size(tp_group)
    output = attention_layer(hidden_states, w_qkv, w_o, num_heads // tp, softmax_scale, causal, cp_group)
    if tp > 1:
        dist.all_reduce(output, op=dist.ReduceOp.SUM, group=tp_group)
    return output
