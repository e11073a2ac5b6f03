"""Log-probabilities under top-k / top-p: whole rows for a share of the tokens, one number a token back."""

import torch
import torch.distributed as dist

from problems.shared.truncated_sampling import log_probabilities, require_shares


@torch.no_grad()
def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float | None = 1.0,
) -> torch.Tensor:
    """vocab_parallel_logits [B, S, V/W], target [B, S] int64 -> log p(target) [B, S] float32, the same on every rank.

    -inf where the filter drops the target. W must divide B·S.
    """
    require_shares(target.numel(), target.numel(), tp_group)
    local = vocab_parallel_logits.flatten(0, 1)
    return log_probabilities(local, target.flatten(), tp_group, top_k, top_p).view(target.shape)
