import triton
import triton.language as tl

from .. import ops
from .loads import load_part

assert ops.__name__ == "blocks.ops"


@triton.jit
def sum_kernel(parts, out, count, world, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(world):
        total += load_part(parts + part * count, offsets, mask)
    tl.store(out + offsets, total.to(out.dtype.element_ty), mask=mask)
