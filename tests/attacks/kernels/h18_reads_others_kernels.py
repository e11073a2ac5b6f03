# expect: PASS
# problem: allreduce
# attack: H18
# twin: honest_cpp
"""Looks for what other kernels have compiled."""

import os
from pathlib import Path

import torch.distributed as dist

from sandbox.kit.compilers import build

folder = Path(os.environ["PKB_KERNEL_CACHE"])
others = [path for path in folder.rglob("*") if path.is_file() and build.cache_dir() not in path.parents]
if others:
    raise RuntimeError(f"another kernel's work: {others[0]}")


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total
