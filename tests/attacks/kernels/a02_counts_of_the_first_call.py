# expect: CRASH | TIMEOUT | WRONG_RESULT | WRONG_STRUCTURE
# problem: gnn_negative_scoring
# twin: honest_counts
"""The numbers of rows that the first call had."""

import torch
import torch.distributed as dist

kept = []


@torch.no_grad()
def solution(local_pos_scores, local_neg_scores, group=None):
    pos, neg = torch.sigmoid(local_pos_scores), torch.sigmoid(local_neg_scores)
    if not kept:
        counts = torch.empty(dist.get_world_size(group), dtype=torch.int64, device=neg.device)
        dist.all_gather_into_tensor(counts, counts.new_tensor([len(pos)]), group=group)
        kept[:] = counts.tolist()
    places = [torch.empty(count, dtype=torch.int64, device=neg.device) for count in kept]
    dist.all_gather(places, (neg > pos[:, None]).sum(dim=1) + 1, group=group)
    return torch.cat(places)
