"""Variable-split exchange of rows: one all-to-all."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    local_tensor: torch.Tensor,
    input_split_sizes: list[int] | None = None,
    output_split_sizes: list[int] | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """local_tensor [T, H], rows ordered by destination; the lists say how many go to and come from each group rank.

    Returns [sum(output_split_sizes), H], rows ordered by source. Without output splits the result has the input's shape;
    a list that is missing stands for equal parts. A group of one rank gets its own rows back.
    """
    rows = local_tensor.contiguous()
    if dist.get_world_size(group) == 1:
        return rows
    shape = rows.shape if output_split_sizes is None else (sum(output_split_sizes), rows.shape[1])
    received = rows.new_empty(shape)
    dist.all_to_all_single(received, rows, output_split_sizes, input_split_sizes, group=group)
    return received
