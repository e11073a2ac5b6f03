# problem: gemm_allreduce
"""Lowers its priority and starts a program in a session of its own when it is loaded, and stays at that."""

import os
import subprocess

import torch.distributed as dist

os.nice(1)
subprocess.Popen(["sleep", "60"], start_new_session=True)


def solution(A, B):
    total = A @ B
    dist.all_reduce(total)
    return total
