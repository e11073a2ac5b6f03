"""House kernel: all-to-all with variable splits; every row is stored at its final place at once."""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.rows import all_to_all_rows

symm.reserve(6 << 30)  # two results of the largest sizes, with room for a hot destination


def solution(
    local_tensor: torch.Tensor,
    input_split_sizes: list[int] | None = None,
    output_split_sizes: list[int] | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """local_tensor [T, H], rows ordered by destination; the lists count the rows to and from each rank of the group.

    Returns [sum(output_split_sizes), H], rows ordered by source. Without output splits the result has the input's shape;
    a missing list means equal parts. A group of one rank gets its own rows back.
    """
    team = symm.team(group)
    if team.world == 1:
        return local_tensor.contiguous()
    equal = [local_tensor.shape[0] // team.world] * team.world
    return all_to_all_rows(local_tensor, input_split_sizes or equal, output_split_sizes or equal, team)
