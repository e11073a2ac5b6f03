# expect: WRONG_RESULT
"""Returns what the output slot holds already: the baseline's answer, in a harness that lends both the same memory."""

import gc

import torch

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def solution(tensor):
    return rank.outputs[: tensor.numel() * 2].clone().view(torch.bfloat16).view(tensor.shape)
