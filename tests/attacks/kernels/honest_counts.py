# problem: gnn_negative_scoring
"""The numbers of rows in every call, in the way of a02_counts_of_the_first_call."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(local_pos_scores, local_neg_scores, group=None):
    pos, neg = torch.sigmoid(local_pos_scores), torch.sigmoid(local_neg_scores)
    counts = torch.empty(dist.get_world_size(group), dtype=torch.int64, device=neg.device)
    dist.all_gather_into_tensor(counts, counts.new_tensor([len(pos)]), group=group)
    places = [counts.new_empty(count) for count in counts.tolist()]
    dist.all_gather(places, (neg > pos[:, None]).sum(dim=1) + 1, group=group)
    return torch.cat(places)
