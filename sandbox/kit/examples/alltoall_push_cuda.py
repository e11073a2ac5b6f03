"""All-to-all in one launch: chunk d of this rank is stored straight into its place in rank d's output.

A thread takes one word of every chunk, so that all peers are written to all the time; one barrier.
"""

import torch

from sandbox.kit import cuda, symm

SOURCE = r"""
// x: [W (receivers)][n] halves (two bytes); y: [W (senders)][n], symmetric.
extern "C" __global__ void __launch_bounds__(512) all_to_all(Px px, const u16* x, u16* y, i64 n, u32 epoch) {
    const i64 words = (n + 7) / 8, step = gridDim.x * blockDim.x;
    for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        uint4 part[PX_MAX_WORLD];
        #pragma unroll  // all loads are in flight before the first store
        for (int turn = 0; turn < PX_MAX_WORLD; ++turn)
            if (turn < px.world) part[turn] = px_ld_part(x + (px.rank + turn) % px.world * n, 8 * i, n);
        #pragma unroll
        for (int turn = 0; turn < PX_MAX_WORLD; ++turn)
            if (turn < px.world)
                px_st_part(px_at(px, (px.rank + turn) % px.world, y) + px.rank * n, 8 * i, n, part[turn]);
    }
    px_barrier(px, blockIdx.x, epoch);  // every rank's chunk has arrived
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
    result = symm.out(tensor.shape, tensor.dtype)
    halves = tensor.numel() * tensor.element_size() // (2 * symm.world)  # of a chunk
    blocks = min(max(-(-halves // (8 * 512)), 1), BLOCKS)
    kernels.all_to_all[blocks, 512](symm.px, tensor, result, halves, symm.next_epoch())
    return result
