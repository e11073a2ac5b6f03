# expect: WRONG_RESULT
"""Zeros: right within an absolute tolerance where values are small."""

import torch


def solution(tensor):
    return torch.zeros_like(tensor)
