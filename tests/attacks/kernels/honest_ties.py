# problem: dinov2_distributed_knn
"""Equal similarities come in the reverse of the usual order: other columns win ties for the last places."""

import torch
import torch.distributed as dist


def solution(test_features_rank, train_features_rank_T, train_labels_rank, max_k, group=None):
    world = dist.get_world_size(group)
    queries, columns = test_features_rank.contiguous(), train_features_rank_T.contiguous()
    everyone = [torch.empty_like(columns) for _ in range(world)]
    dist.all_gather(everyone, columns, group=group)
    labels = torch.empty(world, train_labels_rank.shape[1], dtype=torch.int64, device=queries.device)
    dist.all_gather_into_tensor(labels, train_labels_rank.contiguous(), group=group)
    similarities = torch.cat([queries @ part for part in everyone], dim=1)
    order = similarities.flip(1).argsort(dim=1, descending=True, stable=True)[:, :max_k]
    return similarities.flip(1).gather(1, order), labels.view(-1).flip(0)[order]
