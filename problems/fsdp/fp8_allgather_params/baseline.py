"""Parameter shards rounded through FP8 with a delayed scale per rank, then gathered."""

import torch
import torch.distributed as dist

from problems.shared.delayed_scaling import next_scale, through_fp8


@torch.no_grad()
def solution(flat_param_shard: torch.Tensor, amax_history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """flat_param_shard [P] of the run dtype, amax_history [16] bfloat16, both of this rank alone.

    Returns (the FP8-rounded shards of all ranks in rank order [W·P], the same everywhere; this rank's new history [16]).
    """
    history, scale = next_scale(flat_param_shard, amax_history)
    rounded = through_fp8(flat_param_shard, scale)
    gathered = rounded.new_empty(dist.get_world_size() * rounded.numel())
    dist.all_gather_into_tensor(gathered, rounded)
    return gathered, history
