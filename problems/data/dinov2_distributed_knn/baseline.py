"""Distributed k-nearest neighbours: everyone's queries against the own shard, candidates back to the queries'
owners.
"""

import torch
import torch.distributed as dist

from problems.shared.variable_exchange import exchange_rows


@torch.no_grad()
def solution(
    test_features_rank: torch.Tensor,
    train_features_rank_T: torch.Tensor,
    train_labels_rank: torch.Tensor,
    max_k: int,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """test_features_rank [Q, D], train_features_rank_T [D, T], train_labels_rank [1, T] int64 -> two times
    [Q, max_k].

    The largest scalar products of each own query with all ranks' columns, in descending order and in the run
    dtype, and the labels (int64) of those columns. Q and T may differ between ranks; max_k may not exceed any
    T (ValueError).
    """
    if max_k > train_features_rank_T.shape[1]:
        raise ValueError(f"max_k is {max_k}, but this rank has only {train_features_rank_T.shape[1]} training features")
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    queries = test_features_rank.contiguous()
    mine = torch.tensor([queries.shape[0]], dtype=torch.int64, device=queries.device)
    gathered = torch.empty(world, dtype=torch.int64, device=queries.device)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    counts = gathered.tolist()
    everyone = [queries.new_empty(count, queries.shape[1]) for count in counts]
    dist.all_gather(everyone, queries, group=group)

    nearest, columns = (torch.cat(everyone) @ train_features_rank_T).topk(max_k, dim=1)
    labels = train_labels_rank.view(-1)[columns]
    back = [counts[rank]] * world
    # [W * Q, k], by the rank that found them -> [Q, W * k]
    nearest, labels = (
        exchange_rows(x, counts, back, group).view(world, -1, max_k).transpose(0, 1).flatten(1)
        for x in (nearest, labels)
    )
    similarities, places = nearest.topk(max_k, dim=1)
    return similarities, labels.gather(1, places)
