"""Sums within a process group of its own, and over a mesh of distributed tensors; asks for members in every call."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate

group, alone = dist.new_group(), [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
mesh = init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", (dist.get_world_size(),))


def solution(tensor):
    assert len(dist.get_process_group_ranks(group)) == dist.get_world_size() and alone.size() == 1
    half = tensor / 2
    other = DTensor.from_local(half.clone(), mesh, [Partial()]).redistribute(placements=[Replicate()]).to_local()
    dist.all_reduce(half, group=group)
    return half + other
