# expect: BASELINE_DISTURBED | PASS
# problem: gemm_allreduce
# not_faster: yes
# twin: honest_lower_priority
"""Begins a session of its own when it is loaded: a world of two sessions has twice the weight."""

import os

import torch.distributed as dist

os.setsid()


def solution(A, B):
    total = A @ B
    dist.all_reduce(total)
    return total
