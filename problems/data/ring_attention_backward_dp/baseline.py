"""Backward of ring attention inside every replica, then the average over replicas."""

import torch
import torch.distributed as dist

from problems.shared.ring import ring_attention_backward


@torch.no_grad()
def solution(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    dp_group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dout, q, k, v, out [B, S, H, d], softmax_lse [B, H, S] float32 -> (dq, dk, dv) [B, S, H, d] of the run dtype.

    Sums over blocks stay float32; each gradient is rounded, then summed over dp_group in the run dtype and divided by its
    size (dp_group None: no average).
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    gradients = ring_attention_backward(dout, q, k, v, out, softmax_lse, scale, causal, cp_group)
    rounded = torch.stack([gradient.to(q.dtype) for gradient in gradients])
    replicas = dist.get_world_size(dp_group) if dp_group is not None else 1
    if replicas > 1:
        dist.all_reduce(rounded, op=dist.ReduceOp.SUM, group=dp_group)
        rounded /= replicas
    grad_q, grad_k, grad_v = rounded
    return grad_q, grad_k, grad_v
