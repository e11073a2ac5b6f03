"""Symmetric int8 quantisation with one float32 scale per block of consecutive elements."""

import torch

SMALLEST_MAXIMUM = 1e-8


def quantize(flat: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """flat [n] -> (codes [blocks, block] int8, scales [blocks, 1] float32); the last block is padded with zeros.

    A block's scale is its largest magnitude / 127. Codes are rounded half to even from a true float32 division.
    """
    blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % block)).view(-1, block)
    largest = blocks.abs().amax(dim=1, keepdim=True).to(torch.float32)
    scales = largest.clamp_(min=SMALLEST_MAXIMUM) / 127
    codes = (blocks.to(torch.float32) / scales).round_().clamp_(-127, 127)
    return codes.to(torch.int8), scales


def dequantize(codes: torch.Tensor, scales: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` values [count] float32 of codes [blocks, block] times scales [blocks, 1]."""
    return (codes.to(torch.float32) * scales).view(-1)[:count]
