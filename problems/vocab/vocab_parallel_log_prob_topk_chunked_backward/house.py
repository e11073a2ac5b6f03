"""The house's gradient of filtered log-probabilities: the cut of each row is found together, and every rank writes its own
columns.
"""

import torch
import torch.distributed as dist

from sandbox.kit.blocks.truncation import find_cut


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

    grad_output · (one-hot - filtered softmax) inside the kept set, zero outside. The world must divide B·S and
    B·max(1, chunk_size), as whoever hands rows out in chunks needs it; here chunks change nothing.
    """
    tokens, world = target.numel(), dist.get_world_size(tp_group)
    chunk = target.shape[0] * max(1, chunk_size)
    if tokens % world or chunk % world:
        raise ValueError(f"{tokens} tokens in chunks of {chunk} cannot be shared equally by {world} ranks")
    logits, flat, incoming = vocab_parallel_logits.flatten(0, 1), target.flatten(), grad_output.flatten()
    cut = find_cut(logits, flat, tp_group, top_k, top_p)
    wide = logits.float()
    outside = wide < cut.least[:, None]
    if top_p is not None and top_p < 1:  # of those that equal the least one the first may be dropped
        equal = wide == cut.least[:, None]
        outside |= equal & (equal.cumsum(dim=1, dtype=torch.int32) <= cut.dropped[:, None])
    gradient = (wide - cut.log_sum[:, None]).exp_().neg_()
    columns = logits.shape[1]
    column = flat - dist.get_rank(tp_group) * columns
    here = (column >= 0) & (column < columns)
    one = here.to(gradient.dtype)[:, None]
    gradient.scatter_add_(1, column.masked_fill(~here, 0)[:, None], one)
    gradient *= incoming[:, None].float()
    return gradient.masked_fill_(outside, 0).view(vocab_parallel_logits.shape)
