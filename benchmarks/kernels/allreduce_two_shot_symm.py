"""All-reduce by torch's own two-shot operation on symmetric memory: each rank adds a slice, then reads the others'."""

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"  # peers' plain addresses are all it takes
GROUP = dist.distributed_c10d._get_default_group().group_name
buffers: dict[tuple[torch.Size, torch.dtype, int], torch.Tensor] = {}
calls = 0


def symmetric(tensor: torch.Tensor, turn: int) -> torch.Tensor:
    """This rank's shared buffer for tensors of this kind; made and exchanged at the first use."""
    key = (tensor.shape, tensor.dtype, turn)
    if key not in buffers:
        buffers[key] = symmetric_memory.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        symmetric_memory.rendezvous(buffers[key], GROUP)
    return buffers[key]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    global calls
    calls += 1
    # The sum is left in the buffer: two in turn, so that what is returned outlives the next call.
    buffer = symmetric(tensor, calls % 2)
    buffer.copy_(tensor)
    result: torch.Tensor = torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", GROUP)
    return result
