"""Fetch feature rows from range-sharded owners (request, reply), then project them."""

import torch
import torch.distributed as dist

from problems.shared.variable_exchange import bucket_counts, exchange_counts, exchange_rows


@torch.no_grad()
def solution(
    local_embedding_shard: torch.Tensor,
    input_node_ids: torch.Tensor,
    proj_matrix: torch.Tensor,
    num_total_nodes: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """local_embedding_shard [rows, D], input_node_ids [Q] int64, proj_matrix [D, Dout] -> [Q, Dout].

    With Ns = ceil(num_total_nodes / W), rank r holds table rows r*Ns up to (r+1)*Ns (fewer on the last
    ranks). Row i of the result is the table row of input_node_ids[i] times this rank's proj_matrix.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    shard = -(-num_total_nodes // world)
    owner = torch.div(input_node_ids, shard, rounding_mode="floor").clamp(max=world - 1)
    order = torch.argsort(owner.to(torch.int16), stable=True)
    sent, received = exchange_counts(bucket_counts(owner, world), group)
    wanted = exchange_rows(input_node_ids[order], sent, received, group)
    found = exchange_rows(local_embedding_shard[wanted - rank * shard], received, sent, group)
    features = torch.empty_like(found)
    features[order] = found
    return features @ proj_matrix
