import torch
import triton

from .ops.sums import sum_kernel

BLOCK = 1024


def sum_parts(parts: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(parts[0])
    count = out.numel()
    sum_kernel[(triton.cdiv(count, BLOCK),)](parts, out, count, parts.shape[0], BLOCK=BLOCK)
    return out
