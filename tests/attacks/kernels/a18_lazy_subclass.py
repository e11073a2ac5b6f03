# expect: WRONG_STRUCTURE
"""A tensor subclass that would do its work when somebody looks."""

import torch


class Lazy(torch.Tensor):
    pass


def solution(tensor):
    return tensor.clone().as_subclass(Lazy)
