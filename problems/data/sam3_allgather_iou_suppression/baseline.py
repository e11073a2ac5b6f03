"""Overlap suppression of tracked objects: gather all masks, compare all pairs, blank the recently occluded."""

import torch
import torch.distributed as dist


def _gathered(local: torch.Tensor, counts: list[int], group: dist.ProcessGroup | None) -> torch.Tensor:
    """local [counts[rank], ...] -> [sum of counts, ...] in rank order."""
    parts = [local.new_empty((count, *local.shape[1:])) for count in counts]
    dist.all_gather(parts, local.contiguous(), group=group)
    return torch.cat(parts)


@torch.no_grad()
def solution(
    low_res_masks_local: torch.Tensor,
    obj_scores_local: torch.Tensor,
    num_obj_per_gpu: list[int],
    last_occluded: torch.Tensor,
    iou_threshold: float = 0.7,
    reverse: bool = False,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """low_res_masks_local [n_r, H, W] logits, obj_scores_local [n_r], last_occluded [N] int64 -> masks,
    scores, suppressed.

    n_r = num_obj_per_gpu[rank], N their sum. Returns masks [N, H, W] and scores [N] in float32 (float64 for
    float64), objects in rank order, and suppressed [N] bool, the same on every rank. Two objects overlap if
    the IoU of their positive areas reaches iou_threshold; then the one with the larger last_occluded (the
    smaller with reverse) is suppressed and its mask becomes -10, unless the other's last_occluded is -1.
    ValueError if a local count is not the announced one.
    """
    expected = num_obj_per_gpu[dist.get_rank(group)]
    if low_res_masks_local.shape[0] != expected or obj_scores_local.shape[0] != expected:
        raise ValueError(
            f"num_obj_per_gpu announces {expected} objects on this rank, "
            f"not {low_res_masks_local.shape[0]} masks and {obj_scores_local.shape[0]} scores"
        )
    wide = torch.promote_types(low_res_masks_local.dtype, torch.float32)
    masks = _gathered(low_res_masks_local, num_obj_per_gpu, group).to(wide)
    scores = _gathered(obj_scores_local, num_obj_per_gpu, group).to(wide)

    # Counts below 2^24 are exact in float32.
    positive = (masks > 0).flatten(1).to(wide)
    shared = positive @ positive.t()
    area = shared.diagonal()
    union = area[:, None] + area[None, :] - shared
    overlaps = (shared / union.clamp(min=1)) >= iou_threshold
    overlaps.fill_diagonal_(False)

    mine, other = last_occluded[:, None], last_occluded[None, :]
    yields = mine < other if reverse else mine > other
    suppressed = (overlaps & yields & (other > -1)).any(dim=1)
    return torch.where(suppressed[:, None, None], -10.0, masks), scores, suppressed
