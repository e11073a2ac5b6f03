"""Combine half of an expert-parallel layer: regroup by source, return the rows, weigh them and sum per token."""

import torch
import torch.distributed as dist

from problems.shared.moe import exchange_rows, regroup_chunks


@torch.no_grad()
def solution(
    expert_outputs: torch.Tensor,
    routing_weights: torch.Tensor,
    selected_experts: torch.Tensor,
    num_experts: int,
    input_splits: list[int],
    output_splits: list[int],
    num_global_tokens_per_local_expert: torch.Tensor,
    routing_map: torch.Tensor,
    local_input_permutation_mapping: torch.Tensor,
    org_hidden_states_shape: torch.Size,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """expert_outputs [R_out, H] expert-major; routing_weights and selected_experts [T, K]; the dispatch's tables.

    The splits keep the names they had in the dispatch: this call sends output_splits and receives input_splits.
    Returns the weighted sum of each token's rows, of shape org_hidden_states_shape [T, H].
    """
    by_source = regroup_chunks(expert_outputs, num_global_tokens_per_local_expert.t())
    returned = exchange_rows(by_source, output_splits, input_splits, group)
    dense = routing_weights.new_zeros(routing_map.shape[::-1])  # token, expert
    dense.scatter_add_(1, selected_experts, routing_weights)
    expert, token = routing_map.nonzero(as_tuple=True)
    weighted = returned * dense[token, expert].unsqueeze(1)
    combined = returned.new_zeros(org_hidden_states_shape)
    return combined.index_add_(0, local_input_permutation_mapping, weighted)
