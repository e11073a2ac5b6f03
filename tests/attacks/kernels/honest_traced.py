"""A custom operator in a function traced by torch.fx, and functional collectives under torch.compile."""

import functools

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional


@torch.library.custom_op("honest::copied", mutates_args=())
def copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


copied.register_fake(torch.empty_like)


@functools.cache
def program():
    doubled = torch.fx.symbolic_trace(lambda x: x + torch.ops.honest.copied(x))
    return torch.compile(lambda x: functional.all_reduce(doubled(x), "sum", dist.group.WORLD) / 2, backend="aot_eager")


def solution(tensor):
    return program()(tensor).clone()
