"""Dispatch half of an expert-parallel layer: permute, exchange, regroup by expert."""

import torch
import torch.distributed as dist

from problems.shared.moe import exchange_rows, regroup_chunks


@torch.no_grad()
def solution(
    hidden_states: torch.Tensor,
    expert_mask: torch.Tensor,
    num_experts: int,
    input_splits: list[int],
    output_splits: list[int],
    num_global_tokens_per_local_expert: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Size]:
    """hidden_states [.., H] (T tokens), expert_mask [E, K, T], splits of W ints, num_global_tokens_.. [W, E_l] int64.

    Returns (rows for this rank's experts [R_out, H], expert-major; routing map [E, T] in the mask's dtype; for every row
    of the send buffer its token [R] int64; the shape [T, H]).

    Raises:
        RuntimeError: the mask has another number of (expert, token) pairs than input_splits says.
    """
    tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
    routing_map = expert_mask.sum(dim=1)
    permutation = routing_map.nonzero()[:, 1].contiguous()
    if permutation.numel() != sum(input_splits):
        raise RuntimeError(f"the mask routes {permutation.numel()} rows, input_splits says {sum(input_splits)}")
    received = exchange_rows(tokens[permutation], input_splits, output_splits, group)
    rows = regroup_chunks(received, num_global_tokens_per_local_expert)
    return rows, routing_map, permutation, tokens.shape
