"""SigLIP loss: text blocks travel both ways round the ring, and every rank scores its images against all of them."""

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

Sent = list[tuple[int, torch.Tensor]]


def exchange(sent: Sent, sources: list[int], group: dist.ProcessGroup) -> tuple[list[torch.Tensor], list[Any]]:
    """Starts sending (rank of the group, tensor) pairs and receiving one tensor of the same shape from every source."""
    received = [torch.empty_like(sent[0][1]) for _ in sources]
    operations = [dist.P2POp(dist.isend, t, dist.get_global_rank(group, to), group) for to, t in sent]
    operations += [
        dist.P2POp(dist.irecv, tensor, dist.get_global_rank(group, source), group)
        for source, tensor in zip(sources, received, strict=True)
    ]
    return received, dist.batch_isend_irecv(operations)


@torch.no_grad()
def solution(
    image_features: torch.Tensor,
    text_features: torch.Tensor,
    logit_scale: float,
    logit_bias: float = 0.0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """image_features, text_features [rows, D] -> this rank's loss, a 0-dim tensor of the run dtype.

    The sum over its images and all texts of -logsigmoid(±(logit_scale · <image, text> + logit_bias)), plus on matching pairs
    and minus elsewhere, divided by rows.
    """
    group = group or dist.group.WORLD
    me, size = dist.get_rank(group), dist.get_world_size(group)
    left, right = (me - 1) % size, (me + 1) % size
    scaled = logit_scale * image_features
    rows = image_features.shape[0]

    def block_loss(text: torch.Tensor, own: bool = False) -> torch.Tensor:
        logits = scaled @ text.t() + logit_bias
        if own:
            logits.diagonal().neg_()
        return -functional.logsigmoid(-logits).sum() / rows

    to_left = to_right = text_features.contiguous()
    held, loss = [text_features], None
    steps = size // 2
    for step in range(steps + 1):
        pending: list[Any] = []
        arriving: list[torch.Tensor] = []
        if step < steps:
            if size % 2 == 0 and step + 1 == steps:
                arriving, pending = exchange([(right, to_right)], [left], group)
            else:
                arriving, pending = exchange([(left, to_left), (right, to_right)], [right, left], group)
        for text in held:
            found = block_loss(text, own=step == 0)
            loss = found if loss is None else loss + found
        for work in pending:
            work.wait()
        held = arriving
        if len(arriving) == 2:
            to_left, to_right = arriving
    assert loss is not None
    return loss
