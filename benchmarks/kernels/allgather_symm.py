"""All-gather by torch's own low-contention operation on symmetric memory: copy engines pull every rank's tensor."""

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"  # peers' plain addresses are all it takes
GROUP = dist.distributed_c10d._get_default_group().group_name
buffers: dict[tuple[torch.Size, torch.dtype], torch.Tensor] = {}


def symmetric(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shared buffer for tensors of this kind; made and exchanged at the first use."""
    key = (tensor.shape, tensor.dtype)
    if key not in buffers:
        buffers[key] = symmetric_memory.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        symmetric_memory.rendezvous(buffers[key], GROUP)
    return buffers[key]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    # One buffer is enough: the operation ends with a barrier. It runs on a stream of its own, so wait for it.
    shared = symmetric(tensor)
    shared.copy_(tensor)
    gathered: torch.Tensor = torch.ops.symm_mem._low_contention_all_gather(shared, GROUP)
    torch.ops._c10d_functional.wait_tensor(gathered)
    return gathered.view(-1, *tensor.shape)
