"""Scatter with one collective; the root's chunks are views of its argument."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    """tensor [W, M, N] on src, a template [M, N] elsewhere -> [M, N]: chunk r of src's tensor, fresh, on rank
    r.

    A leading dimension of k·W on src is dealt out in runs of k rows that keep that dimension when k > 1.
    """
    if dist.get_rank() != src:
        received = torch.empty_like(tensor)
        dist.scatter(received, src=src)
        return received
    chunks = [
        chunk.squeeze(0) if chunk.shape[0] == 1 else chunk for chunk in tensor.contiguous().chunk(dist.get_world_size())
    ]
    received = torch.empty_like(chunks[0])
    dist.scatter(received, chunks, src=src)
    return received
