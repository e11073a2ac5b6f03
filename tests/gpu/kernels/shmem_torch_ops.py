"""An all-gather by torch's own functions for NVSHMEM, without the kit."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

symm_mem.set_backend("NVSHMEM")
boxes: list[torch.Tensor] = []


def solution(tensor: torch.Tensor) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    if not boxes:
        for _ in range(world):
            boxes.append(symm_mem.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device))
            symm_mem.rendezvous(boxes[-1], dist.group.WORLD.group_name)
    boxes[rank].copy_(tensor)
    for peer in range(world):
        if peer != rank:
            torch.ops.symm_mem.nvshmem_put(boxes[rank], peer)
    arrived = torch.zeros(1, device=tensor.device)
    dist.all_reduce(arrived)  # the handle's own barrier does nothing
    result = torch.stack(boxes)
    dist.all_reduce(arrived)
    return result
