"""Row-parallel 3-D convolution: local channels, a sum over the ranks, then the bias once."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def solution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int | tuple[int, int, int],
    padding: int | tuple[int, int, int],
    dilation: int | tuple[int, int, int],
    groups: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """input [B, Ci, T, H, W], weight [Co, Ci/groups, kt, kh, kw], bias [Co] -> [B, Co, To, Ho, Wo], the same
    everywhere.

    Ci are this rank's channels; partial outputs are summed over the ranks in the run dtype.
    """
    out = F.conv3d(input, weight, None, stride, padding, dilation, groups)
    dist.all_reduce(out, op=dist.ReduceOp.SUM, group=group)
    if bias is not None:
        out += bias.view(-1, 1, 1, 1)
    return out
