"""Clips gradients to a global norm: one launch for all sums and their exchange, one for all gradients.

    from sandbox.kit.blocks.clipping import clip

    norm = clip(gradients, max_norm=1.0, norm_type=2.0, groups=[group])

The factor min(1, max_norm / norm) stays on the GPU.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm, tables
from sandbox.kit.blocks import cuda_text

kernel_for = cuda.lazy(cuda_text("clipping"))
BLOCKS, THREADS = 264, 512
Groups = Sequence[dist.ProcessGroup | None]


def clip(
    dense: Sequence[torch.Tensor],
    max_norm: float,
    norm_type: float,
    groups: Groups,
    experts: Sequence[torch.Tensor] = (),
    divisor: float = 1.0,
    expert_groups: Groups | None = None,
) -> torch.Tensor:
    """Divides the experts' gradients by `divisor`, then scales all in place so that their common p-norm is at most max_norm.

    dense, experts: gradients of any shape and one dtype, any number of them. groups: the sum of powers of the dense
    gradients is reduced over each of these in turn (None is left out). expert_groups: the same for the experts (None:
    the same groups). Returns the norm before clipping, 0-dim, float32 (float64 for float64 gradients). If no gradient has to
    change, none is written.
    """
    over = [group for group in groups if group is not None]
    expert_over = over if expert_groups is None else [group for group in expert_groups if group is not None]
    gradients = [*dense, *experts]
    together = _ranks_of_one_exchange(over, expert_over)
    on_gpus = gradients[0].is_cuda if gradients else "nccl" in dist.get_backend_config()
    if together is None or not (on_gpus and _served(gradients)):
        return _by_library(dense, experts, divisor, max_norm, norm_type, over, expert_over, together)
    team = symm.connect().sub(together)
    device = gradients[0].device if gradients else torch.device("cuda", torch.cuda.current_device())
    dtype = gradients[0].dtype if gradients else torch.float32
    flat = [gradient.contiguous() for gradient in gradients]
    few, many = tables.numbers([n for g in flat for n in (g.data_ptr(), g.numel())], device)
    words = sum(-(-gradient.nbytes // 16) for gradient in flat)
    blocks = min(max(-(-words // (4 * THREADS)), 1), BLOCKS)
    boxes = team.empty((2, team.world, 4), torch.int32, "clipping: boxes")
    done = team.empty(1, torch.int32, "clipping: done")  # zero at first, and after every launch
    partial = torch.empty(2 * blocks, dtype=torch.float32, device=device)
    out = torch.empty(3, dtype=torch.float32, device=device)
    kernels = kernel_for(dtype)
    counts = len(flat), len(dense)
    sum_all = kernels.sum_all[blocks, THREADS]
    sum_all(team.px, few, many, partial, done, boxes, out, *counts, norm_type, divisor, max_norm)
    if flat:
        kernels.scale_all[blocks, THREADS](few, many, out, *counts)
    for gradient, scaled in zip(gradients, flat, strict=True):
        if scaled is not gradient:  # it was not contiguous
            gradient.copy_(scaled)
    return out[0]


def _served(gradients: Sequence[torch.Tensor]) -> bool:
    """Whether the kernels support the dtype, which is the same on all ranks."""
    return all(g.dtype is gradients[0].dtype and g.dtype in cuda.FLOATS for g in gradients)


def _ranks_of_one_exchange(
    over: Sequence[dist.ProcessGroup], expert_over: Sequence[dist.ProcessGroup]
) -> list[int] | None:
    """The ranks of both sums, each of them once; None if one exchange cannot make both sums.

    Two groups that share only this rank are a row and a column of a grid: reducing over both is reducing over all its
    ranks.
    """
    if len(over) > 1 or len(expert_over) > 2:
        return None
    ranks = dist.get_process_group_ranks(over[0]) if over else [dist.get_rank()]
    parts = [dist.get_process_group_ranks(group) for group in expert_over]
    if math.prod(map(len, parts)) != len(ranks) or not {rank for part in parts for rank in part} <= set(ranks):
        return None
    if len(parts) == 2 and set(parts[0]) & set(parts[1]) != {dist.get_rank()}:
        return None
    return ranks


def _by_library(
    dense: Sequence[torch.Tensor],
    experts: Sequence[torch.Tensor],
    divisor: float,
    max_norm: float,
    norm_type: float,
    over: Sequence[dist.ProcessGroup],
    expert_over: Sequence[dist.ProcessGroup],
    together: list[int] | None,
) -> torch.Tensor:
    """Does the same by library calls: one exchange of both sums if possible, and one pass to divide and scale."""
    gradients = [*dense, *experts]
    first = gradients[0] if gradients else torch.empty(0)
    wide = torch.promote_types(first.dtype, torch.float32)
    sums = first.new_zeros(2, dtype=wide)
    for index, gradient in enumerate(gradients):
        norm = torch.linalg.vector_norm(gradient, norm_type, dtype=wide)
        sums[int(index >= len(dense))] += norm**norm_type
    if together is None:
        for group in over:
            dist.all_reduce(sums[0], group=group)
        for group in expert_over:
            dist.all_reduce(sums[1], group=group)
    elif over:
        dist.all_reduce(sums, group=over[0])
    total = torch.pow(sums[0] + sums[1] / divisor**norm_type, 1 / norm_type)
    norm = float(total)
    factor = max_norm / norm if norm > max_norm else 1.0
    for family, scale in ((dense, factor), (experts, factor / divisor)):
        if scale != 1:
            for gradient in family:
                gradient.mul_(scale)
    return total
