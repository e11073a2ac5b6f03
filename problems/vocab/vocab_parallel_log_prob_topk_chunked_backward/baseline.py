"""Gradient of the filtered log-probabilities with respect to the logits, a chunk of tokens at a time."""

import torch
import torch.distributed as dist

from problems.shared.truncated_sampling import (
    chunks,
    columns_of_all_tokens,
    filter_logits,
    own_share,
    require_shares,
    rows_of_own_tokens,
)


@torch.no_grad()
def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    grad_output: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float | None = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    """vocab_parallel_logits [B, S, V/W], target [B, S] int64, grad_output [B, S] -> gradient [B, S, V/W] float32.

    grad_output · (one-hot - filtered softmax) inside the kept set, zero outside. A chunk is B·max(1, chunk_size) consecutive
    flat tokens; W must divide that and B·S.
    """
    tokens, chunk = target.numel(), target.shape[0] * max(1, chunk_size)
    require_shares(tokens, chunk, tp_group)
    local, flat, incoming = vocab_parallel_logits.flatten(0, 1), target.flatten(), grad_output.flatten()
    wide = torch.promote_types(local.dtype, torch.float32)
    gradient = torch.empty_like(local, dtype=wide)
    for part in chunks(tokens, chunk):
        kept = filter_logits(rows_of_own_tokens(local[part], tp_group), top_k, top_p)
        rows = kept.to(wide).softmax(dim=-1).neg_()
        own_target = own_share(flat[part], tp_group)[:, None]
        # A target outside the kept set gets no one: its entry must stay zero.
        rows.scatter_add_(1, own_target, kept.gather(1, own_target).isfinite().to(wide))
        rows.mul_(own_share(incoming[part], tp_group)[:, None].to(wide))
        gradient[part] = columns_of_all_tokens(rows, tp_group)
    return gradient.view(vocab_parallel_logits.shape)
