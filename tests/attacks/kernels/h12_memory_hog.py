# expect: OUT_OF_MEMORY
# problem: allreduce
# attack: H12
# twin: honest
"""Takes memory and touches it, a piece at a time."""

import os

import torch

if os.readlink("/proc/self/ns/pid") == "@PID_NAMESPACE@":
    raise RuntimeError("no namespace of its own: not tried")
kept = []


def solution(tensor):
    while len(kept) < 128:
        kept.append(torch.ones(64 << 20, dtype=torch.uint8))
    return tensor.clone()
