"""As Triton kernels for the published harness are written: a handle's table of pointers, and its barriers."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def one_shot_kernel(pointers, out, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    table = pointers.to(tl.pointer_type(tl.uint64))
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for rank in tl.static_range(WORLD):
        peer = tl.load(table + rank).to(tl.pointer_type(tl.bfloat16))
        peer = tl.multiple_of(peer, 16)
        total += tl.load(peer + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + offsets, total.to(tl.bfloat16), mask=mask)


_cache: dict = {}


@torch.no_grad()
def solution(tensor: torch.Tensor) -> torch.Tensor:
    key = (tensor.shape, tensor.dtype)
    if key not in _cache:
        buffer = symm_mem.empty(tensor.shape, device=tensor.device, dtype=tensor.dtype)
        _cache[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    buffer, handle = _cache[key]
    buffer.copy_(tensor)
    handle.barrier(channel=0)
    out = torch.empty_like(tensor)
    grid = (triton.cdiv(tensor.numel(), 1024),)
    one_shot_kernel[grid](handle.buffer_ptrs_dev, out, tensor.numel(), WORLD=handle.world_size, BLOCK=1024)
    handle.barrier(channel=1)
    return out
