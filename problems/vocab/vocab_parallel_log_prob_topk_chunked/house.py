"""House kernel: chunked log-probability under top-k and top-p; no rank gathers whole rows, so chunks have no use."""

import torch
import torch.distributed as dist

from sandbox.kit.blocks.truncation import find_cut


def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float | None = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    """vocab_parallel_logits [B, S, V/W], target [B, S] int64 -> log p(target) [B, S] float32, the same on every rank.

    The value is -inf if the filter drops the target. The world size must divide B·S and B·max(1, chunk_size), as
    kernels that distribute rows in chunks require; chunks change nothing here.
    """
    tokens, world = target.numel(), dist.get_world_size(tp_group)
    chunk = target.shape[0] * max(1, chunk_size)
    if tokens % world or chunk % world:
        raise ValueError(f"{tokens} tokens in chunks of {chunk} cannot be shared equally by {world} ranks")
    cut = find_cut(vocab_parallel_logits.flatten(0, 1), target.flatten(), tp_group, top_k, top_p)
    return cut.log_probability.view(target.shape)
