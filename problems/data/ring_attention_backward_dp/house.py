"""House kernel: gradients of attention; ranks exchange heads, weights stay in registers, replicas sum in one launch."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.reshard import reshard
from sandbox.kit.blocks.sums import add_up, boxes
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

WIDEST = 256
"""Largest number of elements of a head for which the tiles of a program fit into shared memory."""
SLOTS = 256
"""First signal slot of the sum over replicas; the exchange of heads uses the slots below."""

symm.reserve(4 << 30)  # two buffers for each exchange, of the largest sizes


def solution(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    dp_group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dout, q, k, v, out [B, S, H, d], softmax_lse [B, H, S] float32 -> (dq, dk, dv) [B, S, H, d] of the run dtype.

    Sums over blocks stay float32; each gradient is rounded, then averaged over dp_group (None: no average) in float32.

    In a ring, each rank sends keys, values and their gradients in float32 in W steps. Here it gets the whole sequence
    of its share of the heads, so it computes complete gradients and sends them back in the run dtype.
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    given, gradients = [dout, q, k, v, out], q.new_empty((3, *q.shape))
    everyone, team = symm.team(cp_group), symm.team(dp_group) if dp_group is not None else None
    box = boxes(gradients.numel(), gradients.dtype, team, gradients.is_cuda) if team and team.world > 1 else gradients
    # The exchange of heads takes buffers in turn, which cannot be recorded.
    write = write_average if everyone.world == 1 else write_average.function
    write(given, softmax_lse, gradients, box, scale, causal, everyone, team)
    grad_q, grad_k, grad_v = gradients
    return grad_q, grad_k, grad_v


@recorded
def write_average(
    given: list[torch.Tensor],
    softmax_lse: torch.Tensor,
    gradients: torch.Tensor,
    box: torch.Tensor,
    scale: float,
    causal: bool,
    everyone: Team,
    replicas: Team | None,
) -> None:
    """Writes the gradients [3, B, S, H, d], averaged over the replicas. box: the buffer of their sum."""
    if everyone.world == 1:
        write_gradients(given, softmax_lse, scale, causal, list(gradients))
    else:
        whole = reshard(torch.stack(given, dim=2), 3, 1, everyone)  # [B, W·S, 5, ceil(H / W), d]
        lse = reshard(softmax_lse, 1, 2, everyone)  # [B, ceil(H / W), W·S]
        mine = whole.new_empty((*whole.shape[:2], 3, *whole.shape[3:]))
        write_gradients(list(whole.unbind(2)), lse, scale, causal, list(mine.unbind(2)))
        home = reshard(mine, 1, 3, everyone)  # [B, S, 3, at least H, d]
        gradients.copy_(home[:, :, :, : gradients.shape[3]].movedim(2, 0))
    if replicas and replicas.world > 1:
        add_up(gradients, box, replicas, factor=1 / replicas.world, base=SLOTS)


def write_gradients(
    given: list[torch.Tensor], lse: torch.Tensor, scale: float, causal: bool, gradients: list[torch.Tensor]
) -> None:
    """Writes (dq, dk, dv) from (dout, q, k, v, out), all [B, S, H, d], and lse [B, H, S], without other ranks."""
    width = given[0].shape[-1]
    if given[0].is_cuda and given[0].dtype != torch.float32 and width <= WIDEST:
        from sandbox.kit.blocks import attention_gradients

        attention_gradients.write_gradients(given, lse, scale, causal, gradients)
        return
    # In float32 nothing is faster than products of whole matrices, so [B, H, S, S] is written.
    upstream, query, key, value, result = (tensor.transpose(1, 2).float() for tensor in given)
    weights = (query @ key.mT).mul_(scale).sub_(lse[..., None]).exp_()
    if causal:
        weights.tril_()
    by_score = upstream @ value.mT
    by_score.sub_((upstream * result).sum(dim=-1, keepdim=True)).mul_(weights).mul_(scale)
    found = (by_score @ key, by_score.mT @ query, weights.mT @ upstream)
    for gradient, part in zip(gradients, found, strict=True):
        gradient.copy_(part.transpose(1, 2))
