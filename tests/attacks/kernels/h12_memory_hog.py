# expect: OUT_OF_MEMORY
"""Takes memory and touches it, a piece at a time."""

import os

import torch

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")
kept = []


def solution(tensor):
    while len(kept) < 128:
        kept.append(torch.ones(64 << 20, dtype=torch.uint8))
    return tensor.clone()
