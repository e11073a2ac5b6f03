"""Compares tensors bit by bit."""

import torch


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements in order, as flat uint8 [numel * element size]; a copy only if not contiguous."""
    # as_strided: a single element may be contiguous with any stride, which view() then refuses.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same bytes. NaNs with the same bits are the same, 0.0 and -0.0 are not."""
    return torch.equal(raw_bytes(a), raw_bytes(b))
