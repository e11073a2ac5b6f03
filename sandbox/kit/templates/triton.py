# mypy: ignore-errors
"""__PROBLEM__

    __SIGNATURE__

Triton on symmetric memory. solution() is still the baseline. all_reduce() below it reads every peer's tensor
in one kernel, behind a barrier. Put more of the problem into that kernel.
"""

import torch
import triton
import triton.language as tl

from sandbox.kit import symm

# __BASELINE__


@triton.jit
def add_all(addresses, out, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    total = tl.zeros((BLOCK,), tl.float32)
    for rank in tl.static_range(WORLD):
        peer = tl.load(addresses + rank).to(tl.pointer_type(out.dtype.element_ty))
        total += tl.load(peer + index, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + index, total.to(out.dtype.element_ty), mask=inside)


address_tables: dict[int, torch.Tensor] = {}


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks, added in float32 in rank order."""
    staged = symm.stage(x)
    key = staged.data_ptr()
    if key not in address_tables:
        address_tables[key] = x.new_tensor(symm.ptrs(staged), dtype=torch.int64)
    result = x.new_empty(x.shape)
    symm.barrier()
    blocks = triton.cdiv(x.numel(), 1024)
    add_all[(blocks,)](address_tables[key], result, x.numel(), WORLD=symm.world, BLOCK=1024)
    return result
