"""House kernel: GEMM with gathered columns of A, which arrive in place, without a transposition, beside the product.

Copy engines gather some rows while others are multiplied. Small matrices take one launch and one product.
"""

import torch

from sandbox.kit import symm
from sandbox.kit.blocks.columns import gathered_product

symm.reserve(4 << 30)  # two gathered matrices of the largest sizes


def solution(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """A_local [M, K/W], B [K, N] (this rank's own) -> [M, N]: all ranks' columns of A times this rank's B."""
    return gathered_product(A_local, B, symm.connect())
