"""House kernel: gather; every rank stores its tensor at its place at the root; on CPU ranks the root copies."""

import torch

from sandbox.kit import cuda, symm

kernels = cuda.lazy(r"""
// Stores every rank's tensor in the root's y. x: n halves (two bytes each); y: [W][n], symmetric, the result on the root. In slot
// BROUGHT + b, block b of every other rank signals to block b of the root that its words have arrived.
#define BROUGHT 128
extern "C" __global__ void __launch_bounds__(512) gather(Px px, const u16* x, u16* y, i64 n, int root) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_reach(px, slot, turn);
    const int peer = px_thread();
    if (peer == 0 && px.rank != root) px_wait(px, root, slot, turn);  // the root has used up its earlier results
    __syncthreads();
    px_move(px_at(px, root, y) + px.rank * n, x, n, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
    __syncthreads();
    if (px.rank != root) {
        if (peer == 0) px_signal(px, root, BROUGHT + slot, turn);
        return;
    }
    if (peer < px.world && peer != root) px_wait(px, peer, BROUGHT + slot, turn);
    __syncthreads();
}
""")
BLOCKS, THREADS = 128, 512

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    """tensor [M, N] -> on dst [W, M, N], slot s holding rank s's tensor; elsewhere the argument itself [M, N].

    On GPUs the element size must be a multiple of two bytes.
    """
    if tensor.is_cuda:
        # The root changes from call to call, so every rank alternates between the two results.
        stacked = symm.out((symm.world, *tensor.shape), tensor.dtype, "stacked")
        halves = tensor.nbytes // 2
        blocks = min(max(-(-halves // (8 * THREADS)), 1), BLOCKS)
        kernels().gather[blocks, THREADS](symm.px, tensor.contiguous(), stacked, halves, dst)
        return stacked if symm.rank == dst else tensor
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    if symm.rank != dst:
        return tensor
    stacked = tensor.new_empty((symm.world, *tensor.shape))
    for slot, peer in zip(stacked, peers, strict=True):
        slot.copy_(peer)
    return stacked
