"""Link-prediction ranking: collect all scores everywhere, sort every row."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    local_pos_scores: torch.Tensor, local_neg_scores: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """local_pos_scores [P_r], local_neg_scores [P_r, K] -> [sum of P_r] int64, the same on every rank.

    Row g of the result is the place (1 = best) of row g's positive among its own negatives after a logistic function
    rounded to the scores' dtype; rows by rank, then by position. Among equal scores the positive comes first.
    """
    pos, neg = local_pos_scores.contiguous(), local_neg_scores.contiguous()
    world = dist.get_world_size(group)
    if world > 1:
        mine = torch.tensor([pos.shape[0]], dtype=torch.int64, device=pos.device)
        counts = torch.empty(world, dtype=torch.int64, device=pos.device)
        dist.all_gather_into_tensor(counts, mine, group=group)
        rows = counts.tolist()
        all_pos = [pos.new_empty(count) for count in rows]
        all_neg = [neg.new_empty(count, neg.shape[1]) for count in rows]
        dist.all_gather(all_pos, pos, group=group)
        dist.all_gather(all_neg, neg, group=group)
        pos, neg = torch.cat(all_pos), torch.cat(all_neg)
    scores = torch.sigmoid(torch.cat((pos[:, None], neg), dim=1))
    order = torch.argsort(scores, dim=1, descending=True, stable=True)
    return (order == 0).to(torch.uint8).argmax(dim=1) + 1
