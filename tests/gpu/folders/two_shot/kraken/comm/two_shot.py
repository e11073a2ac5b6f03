import torch
import triton
import triton.language as tl

from .. import _ptx_utils as ptx_utils

BLOCK, BLOCKS = 4096, 64


@triton.jit
def two_shot_kernel(
    buffers, pads, out, count, part, rank: tl.constexpr, world: tl.constexpr, BLOCK: tl.constexpr, blocks: tl.constexpr
):
    block = tl.program_id(0)
    table = buffers.to(tl.pointer_type(tl.uint64))
    ptx_utils.symm_mem_sync(pads, block, rank, world)
    for start in range(block * BLOCK, part, blocks * BLOCK):
        within = start + tl.arange(0, BLOCK)
        offsets = rank * part + within
        mask = (within < part) & (offsets < count)
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for peer in tl.static_range(world):
            total += tl.load(tl.load(table + peer).to(out.dtype) + offsets, mask=mask, other=0.0).to(tl.float32)
        for peer in tl.static_range(world):
            tl.store(tl.load(table + peer).to(out.dtype) + offsets, total.to(out.dtype.element_ty), mask=mask)
    ptx_utils.symm_mem_sync(pads, block, rank, world)
    own = tl.load(table + rank).to(out.dtype)
    for owner in tl.static_range(world):
        for start in range(block * BLOCK, part, blocks * BLOCK):
            within = start + tl.arange(0, BLOCK)
            offsets = owner * part + within
            mask = (within < part) & (offsets < count)
            tl.store(out + offsets, tl.load(own + offsets, mask=mask), mask=mask)


def two_shot_all_reduce(tensor: torch.Tensor, handle) -> torch.Tensor:
    """Sums the tensors that all ranks have staged in symmetric memory."""
    out = torch.empty_like(tensor)
    part = triton.cdiv(triton.cdiv(tensor.numel(), handle.world_size), 8) * 8
    two_shot_kernel[(BLOCKS,)](
        handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, out, tensor.numel(), part,
        rank=handle.rank, world=handle.world_size, BLOCK=BLOCK, blocks=BLOCKS, num_warps=8,
    )
    return out
