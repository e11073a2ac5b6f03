"""House kernel: all-reduce in one launch; CPU ranks read each other's memory, and add large tensors in shares."""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks import example
from sandbox.kit.blocks.sums import ONE_BARRIER, add_up, boxes

ONE_SHOT = 1 << 15
"""Elements up to which every rank adds the whole tensor, with one barrier. Beyond, each adds 1/W and reads the rest."""

SMALL = 1 << 19
"""Bytes up to which words that carry their own flag are fastest on GPUs."""


def summed(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of every rank's tensor, in float32 and rounded once, as a fresh tensor of the same shape and dtype."""
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    if tensor.numel() <= ONE_SHOT:
        total = peers[0].to(torch.float32, copy=True)
        for peer in peers[1:]:
            total += peer
        return total.to(tensor.dtype)
    part = -(-tensor.numel() // symm.world)
    low = min(symm.rank * part, tensor.numel())
    share = torch.zeros(part, dtype=torch.float32, device=tensor.device)
    mine = share[: max(min(part, tensor.numel() - low), 0)]
    for peer in symm.order():
        mine += peers[peer].view(-1)[low : low + mine.numel()]
    shares = symm.peers(symm.stage(share.to(tensor.dtype), "shares"))
    symm.barrier()
    result = torch.empty(part * symm.world, dtype=tensor.dtype, device=tensor.device)
    for peer in symm.order():
        result[peer * part : (peer + 1) * part] = shares[peer]
    return result[: tensor.numel()].view(tensor.shape)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: the elementwise sum over all ranks, on every rank."""
    if not tensor.is_cuda:
        return summed(tensor)
    team, tensor, nbytes = symm.connect(), tensor.contiguous(), tensor.nbytes
    if nbytes <= SMALL and tensor.dtype is torch.bfloat16 and tensor.numel() % 4 == 0:
        return example("allreduce_one_shot_cuda")(tensor)
    if (team.world - 1) * nbytes > ONE_BARRIER:
        return example("allreduce_two_shot_cuda")(tensor)
    total = torch.empty_like(tensor)
    add_up(tensor, boxes(tensor.numel(), tensor.dtype, team, on_gpu=True), team, out=total)
    return total
