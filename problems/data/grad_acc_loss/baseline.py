"""Globally normalised loss: weight by tokens, all-reduce one scalar, and the gradient by hand."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    loss: torch.Tensor,
    local_valid_tokens: torch.Tensor,
    global_valid_tokens: torch.Tensor,
    grad_normalized_loss: torch.Tensor,
    grad_loss_sum: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All arguments are 0-dim: losses and gradients of the run dtype, counts int64.

    Returns (normalized_loss, loss_sum, grad_loss), 0-dim of the run dtype: Σ_r loss_r·t_r / T, that sum itself, and the
    gradient with respect to this rank's loss. A rank without tokens counts as zero even when its loss is NaN or infinite.
    """
    finite = torch.where(local_valid_tokens == 0, torch.nan_to_num(loss), loss)
    loss_sum = finite * local_valid_tokens
    dist.all_reduce(loss_sum, op=dist.ReduceOp.SUM)
    grad_loss = grad_normalized_loss * local_valid_tokens / global_valid_tokens
    if grad_loss_sum is not None:
        grad_loss = grad_loss + grad_loss_sum * local_valid_tokens
    return loss_sum / global_valid_tokens, loss_sum, grad_loss
