"""GEMM with reduce-scatter by torch's own fused operation on symmetric memory: blocks are copied while the next is multiplied."""

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory  # it registers the operation

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"  # peers' plain addresses are all it takes
GROUP = dist.distributed_c10d._get_default_group().group_name


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    """A_local [M, K/W], B_local [K/W, N] -> [M/W, N]: row block r of the product, on rank r."""
    result: torch.Tensor = torch.ops.symm_mem.fused_matmul_reduce_scatter(A_local, B_local, "sum", 0, GROUP)
    return result
