"""Leaves the smallest three quarters of a token's gradient at zero."""

import torch

from problems.vocab.vocab_parallel_log_prob_topk_chunked_backward.baseline import solution as whole


def solution(*arguments):
    gradient = whole(*arguments)
    size = gradient.abs()
    kept = (size > 0).sum(-1, keepdim=True) // 4
    least = size.sort(dim=-1, descending=True).values.gather(-1, kept)
    return torch.where(size > least, gradient, 0)
