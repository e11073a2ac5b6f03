"""Log-probabilities under top-k / top-p, a chunk of tokens at a time."""

import torch
import torch.distributed as dist

from problems.shared.truncated_sampling import chunks, log_probabilities, require_shares


@torch.no_grad()
def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float | None = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    """vocab_parallel_logits [B, S, V/W], target [B, S] int64 -> log p(target) [B, S] float32, the same on every rank.

    -inf where the filter drops the target. A chunk is B·max(1, chunk_size) consecutive flat tokens; W must divide that and
    B·S.
    """
    tokens, chunk = target.numel(), target.shape[0] * max(1, chunk_size)
    require_shares(tokens, chunk, tp_group)
    local, flat = vocab_parallel_logits.flatten(0, 1), target.flatten()
    found = [log_probabilities(local[part], flat[part], tp_group, top_k, top_p) for part in chunks(tokens, chunk)]
    return torch.cat(found).view(target.shape)
