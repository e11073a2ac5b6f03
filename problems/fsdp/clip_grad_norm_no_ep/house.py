"""House kernel: gradient clipping; one launch computes and exchanges the norm, one scales; the host does not wait."""

import torch
import torch.distributed as dist

from sandbox.kit.blocks.clipping import clip


def solution(
    grad_tensors: list[torch.Tensor | None],
    max_norm: float,
    norm_type: float = 2.0,
    fsdp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Scales the gradients in place so that their global p-norm is at most max_norm.

    grad_tensors: shards of any shape, None entries are skipped. Returns the norm before clipping, 0-dim float32, the same on
    every rank of fsdp_group (no reduction without a group). Gradients that need no scaling are not written.
    """
    gradients = [gradient for gradient in grad_tensors if gradient is not None]
    return clip(gradients, max_norm, norm_type, [fsdp_group])
