"""Lists of numbers for compiled kernels: addresses and sizes of any number of tensors in one launch.

few, many = tables.numbers([x.data_ptr() for x in layers], layers[0].device)
kernel(..., few, many)    # PxNumbers few, const i64* many; there: px_number(few, many, i)
"""

import functools
from collections.abc import Sequence

import torch

from sandbox.kit.layout import PxNumbers

BY_VALUE = len(PxNumbers().at)
"""Numbers that fit into a kernel's parameters."""


def numbers(listed: Sequence[int], device: torch.device) -> tuple[list[int], torch.Tensor | int]:
    """The arguments for `PxNumbers few, const i64* many`: the list itself and 0, or no numbers and an int64 tensor of them.

    A new long list is copied to the GPU once, which blocks the host.
    """
    if len(listed) <= BY_VALUE:
        return list(listed), 0
    return [], _copied(tuple(listed), device)


@functools.lru_cache(maxsize=256)  # a run calls a kernel with up to 128 sets of addresses
def _copied(listed: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(listed, dtype=torch.int64, device=device)
