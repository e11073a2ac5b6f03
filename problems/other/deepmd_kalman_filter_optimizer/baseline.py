"""One step of a layer-wise Kalman filter: a shared scalar, rank-1 updates, an all-gather of the weights."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    H: list[torch.Tensor],
    error: torch.Tensor,
    weights: list[torch.Tensor],
    P: list[torch.Tensor],
    kalman_lambda: float,
    kalman_nue: float = 0.9987,
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """H[i], weights[i] [n_i, 1], P[i] [n_i, n_i], error []: this rank's blocks, float64.

    Returns (the new weights of all ranks, by rank and block; the caller's list P with new blocks; the new
    lambda []). The lists `weights` and `P` are rebound to new tensors, their old tensors keep their values.
    Blocks may differ in number and size between ranks.
    """
    sizes = _sizes_of_all(weights)
    gains = [block @ jacobian for block, jacobian in zip(P, H, strict=True)]
    innovation = torch.stack(
        [kalman_lambda + (jacobian * gain).sum() for jacobian, gain in zip(H, gains, strict=True)]
    ).sum()
    if dist.is_initialized():
        dist.all_reduce(innovation, op=dist.ReduceOp.SUM)
    inverse = 1.0 / innovation
    for i, gain in enumerate(gains):
        weights[i] = weights[i] + inverse * error * gain
        P[i] = torch.addmm(P[i], inverse * gain, gain.T, alpha=-1).div_(kalman_lambda)
    updated = _gathered(weights, sizes)
    nue = torch.as_tensor(kalman_nue, dtype=error.dtype, device=error.device)
    return updated, P, nue * kalman_lambda + (1.0 - nue)


def _sizes_of_all(weights: list[torch.Tensor]) -> list[list[int]]:
    """The block sizes of every rank: their number first, then the sizes, as tensors instead of pickled lists."""
    mine = [weight.numel() for weight in weights]
    if not dist.is_initialized():
        return [mine]
    world, device = dist.get_world_size(), weights[0].device
    counts = torch.empty(world, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(counts, torch.tensor([len(mine)], dtype=torch.int64, device=device))
    blocks = counts.tolist()
    padded = torch.tensor(mine + [0] * (max(blocks) - len(mine)), dtype=torch.int64, device=device)
    everyone = torch.empty(world, max(blocks), dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(everyone, padded)
    return [row[:count] for row, count in zip(everyone.tolist(), blocks, strict=True)]


def _gathered(weights: list[torch.Tensor], sizes: list[list[int]]) -> list[torch.Tensor]:
    """The weights of all ranks as columns, by rank and block."""
    flat = torch.cat([weight.reshape(-1) for weight in weights])
    pieces = [flat.new_empty(sum(blocks)) for blocks in sizes]
    if dist.is_initialized():
        dist.all_gather(pieces, flat)
    else:
        pieces = [flat]
    return [column.view(-1, 1) for piece, blocks in zip(pieces, sizes, strict=True) for column in piece.split(blocks)]
