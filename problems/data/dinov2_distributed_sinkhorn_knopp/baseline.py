"""Sinkhorn-Knopp over a batch that is sharded by samples: prototypes over all ranks, samples locally, in
turn.
"""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    teacher_output: torch.Tensor,
    teacher_temp: float,
    n_masked_patches_tensor: torch.Tensor,
    n_iterations: int = 3,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """teacher_output [b, K], n_masked_patches_tensor [1] int64 -> [b, K] float32 (float64 for float64), own
    samples.

    exp(teacher_output / teacher_temp) is normalised n_iterations times: per prototype over the samples of all
    ranks to 1/K, then per sample over the prototypes to 1 / (all samples). The result is scaled back so that
    a sample's assignments sum to one.
    """
    wide = torch.promote_types(teacher_output.dtype, torch.float32)
    samples = n_masked_patches_tensor.to(wide)
    dist.all_reduce(samples, group=group)
    assigned = torch.exp(teacher_output.to(wide) / teacher_temp)
    mass = assigned.sum()
    dist.all_reduce(mass, group=group)
    assigned /= mass
    prototypes = assigned.shape[1]
    for _ in range(n_iterations):
        column = assigned.sum(dim=0)
        dist.all_reduce(column, group=group)
        assigned /= column * prototypes
        assigned /= assigned.sum(dim=1, keepdim=True) * samples
    assigned *= samples
    return assigned
