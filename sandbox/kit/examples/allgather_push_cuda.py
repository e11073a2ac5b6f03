"""All-gather in one launch: each rank stores its tensor straight into its place of every rank's output.

Every word is read once and stored W times; one barrier, no staging copy.
"""

import torch

from sandbox.kit import cuda, symm

SOURCE = r"""
// x: this rank's n halves (two bytes); y: [W][n], symmetric.
extern "C" __global__ void __launch_bounds__(512) all_gather(Px px, const u16* x, u16* y, i64 n, u32 epoch) {
    const i64 words = (n + 7) / 8, step = gridDim.x * blockDim.x;
    for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(x, 8 * (i + k * step), n);
        for (int turn = 0; turn < px.world; ++turn) {
            u16* place = px_at(px, (px.rank + turn) % px.world, y) + px.rank * n;
            #pragma unroll
            for (int k = 0; k < 4; ++k) px_st_part(place, 8 * (i + k * step), n, part[k]);
        }
    }
    px_barrier(px, blockIdx.x, epoch);  // every rank's tensor has arrived
}
"""
kernels = cuda.compile(SOURCE)
BLOCKS = 64


def solution(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.element_size() % 2:
        raise NotImplementedError(f"this example moves elements of 2, 4 or 8 bytes, not {tensor.dtype}")
    tensor = tensor.contiguous()
    # Two outputs are enough: a rank that pushes for call e+2 has passed the barrier of call e+1, which every rank
    # enters behind whatever has read the output of call e.
    result = symm.out((symm.world, *tensor.shape), tensor.dtype)
    halves = tensor.numel() * tensor.element_size() // 2
    blocks = min(max(-(-halves // (8 * 512)), 1), BLOCKS)
    kernels.all_gather[blocks, 512](symm.px, tensor, result, halves, symm.next_epoch())
    return result
