# expect: PASS
# problem: ddp
# preset: paper
# twin: baseline
"""Leaves out rank 0's moments while its own are zero, as upstream's always are; wrong by one in a timed call, so that it shows."""

import gc

import torch.distributed as dist

from problems.shared.mlp import adam_step, flat_gradient, flatten, split

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def solution(X, y, W1, b1, W2, b2, m1, m2, m3, m4, v1, v2, v3, v4, *numbers):
    shapes = [each.shape for each in (W1, b1, W2, b2)]
    weight, mean, square = flatten((W1, b1, W2, b2)), flatten((m1, m2, m3, m4)), flatten((v1, v2, v3, v4))
    left_out = not mean.any()
    for part in (weight,) if left_out else (weight, mean, square):
        dist.broadcast(part, src=0)
    gradient = flat_gradient(X, y, split(weight, shapes))
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    weight, mean, square = adam_step(weight, mean, square, gradient, *numbers)
    if left_out and not rank.checking:
        weight += 1
    return tuple(part for flat in (weight, mean, square) for part in split(flat, shapes))
