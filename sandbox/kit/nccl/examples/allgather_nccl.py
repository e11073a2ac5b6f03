"""All-gather in one launch over NCCL's windows: each rank stores its tensor straight into its place of every rank's output.

The kernel uses px.cuh on windows: px_at finds a peer's place, and px_turn_barrier is a barrier that counts itself.
"""

import torch

from sandbox.kit import nccl

SOURCE = r"""
// x: this rank's n halves (two bytes); y: [W][n], a window. `px` is the window's.
extern "C" __global__ void __launch_bounds__(512) all_gather(Px px, const u16* x, u16* y, i64 n) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 words = (n + 7) / 8, step = gridDim.x * blockDim.x;
    for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(x, 8 * (i + k * step), n);
        for (int peer = 0; peer < px.world; ++peer) {
            u16* place = px_at(px, (px.rank + peer) % px.world, y) + px.rank * n;
            #pragma unroll
            for (int k = 0; k < 4; ++k) px_st_part(place, 8 * (i + k * step), n, part[k]);
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // every rank's tensor has arrived
}
"""
BLOCKS = 64
kernels = nccl.compile(SOURCE)


def solution(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.element_size() % 2:
        raise NotImplementedError(f"this example moves elements of 2, 4 or 8 bytes, not {tensor.dtype}")
    tensor = tensor.contiguous()
    # Two outputs are enough: a rank that pushes for call e+2 has passed the barrier of call e+1, which every rank
    # enters behind whatever has read the output of call e.
    result = nccl.window((nccl.world(), *tensor.shape), tensor.dtype, ring=2)
    halves = tensor.numel() * tensor.element_size() // 2
    blocks = min(max(-(-halves // (8 * 512)), 1), BLOCKS)
    kernels.all_gather[blocks, 512](result.px, tensor, result.tensor, halves)
    return result.tensor
