# expect: OUT_OF_MEMORY
"""Takes memory and touches it, a piece at a time."""

import os

import torch

try:
    open("@HOME_CANARY@").close()
    raise RuntimeError("no jail: not tried")
except OSError:
    pass
kept = []


def solution(tensor):
    while len(kept) < 128:
        kept.append(torch.ones(64 << 20, dtype=torch.uint8))
    return tensor.clone()
