"""Sums within a process group of its own, and asks for its members in every call."""

import torch.distributed as dist

group = dist.new_group()


def solution(tensor):
    assert dist.get_process_group_ranks(group) == list(range(dist.get_world_size()))
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return total
