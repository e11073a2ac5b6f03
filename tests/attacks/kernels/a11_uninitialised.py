# expect: WRONG_RESULT | NONFINITE
"""Memory that was never written, in the hope that it still holds somebody's answer."""

import torch


def solution(tensor):
    return torch.empty_like(tensor)
