"""Ranks show each other their inputs in every call."""

import torch

from sandbox.kit import symm


def solution(tensor):
    shown = symm.stage(tensor)
    symm.barrier()
    return torch.stack(symm.peers(shown)).float().sum(0).to(tensor.dtype)
