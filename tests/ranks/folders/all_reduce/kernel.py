"""All-reduce in C++, two-shot: each rank adds up its slice, and stores the sums into every rank's result."""

import torch

from sandbox.kit import symm

from .ops.exchange import ALL_REDUCE


def solution(tensor: torch.Tensor) -> torch.Tensor:
    # Rings of two: a rank that is already in its next call writes into the other buffers.
    staged = symm.out(tensor.shape, tensor.dtype, tag="staged", ring=2)
    result = symm.out(tensor.shape, tensor.dtype, tag="result", ring=2)
    ALL_REDUCE[tensor.dtype](symm.px, tensor, staged, result, tensor.numel(), symm.next_epoch())
    return result
