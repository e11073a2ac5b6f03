"""House kernel: scatter; the root stores each chunk in its receiver's result; CPU ranks copy their own chunk."""

import torch

from sandbox.kit import cuda, symm

kernels = cuda.lazy(r"""
// Stores chunk r of the root's x in rank r's y. x: [W][n] halves (two bytes each), read on the root only; y: n halves, symmetric.
// In slot DEALT + b, block b of the root signals to block b of every other rank that its words have arrived.
#define DEALT 128
extern "C" __global__ void __launch_bounds__(512) scatter(Px px, const u16* x, u16* y, i64 n, int root) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // all ranks have ended launch turn - 2: its buffers may be written again
    if (px.rank == root) {
        const i64 step = gridDim.x * blockDim.x;
        for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; 8 * i < n; i += 4 * step)
            for (int away = 1; away <= px.world; ++away) {  // this rank's own chunk last
                const int peer = (root + away) % px.world;
                const u16* chunk = x + peer * n;
                u16* there = px_at(px, peer, y);
                uint4 part[4];
                #pragma unroll  // all loads are in flight before the first store
                for (int k = 0; k < 4; ++k) part[k] = px_ld_part(chunk, 8 * (i + k * step), n);
                #pragma unroll
                for (int k = 0; k < 4; ++k) px_st_part(there, 8 * (i + k * step), n, part[k]);
            }
        __syncthreads();
        const int peer = px_thread();
        if (peer < px.world && peer != root) px_signal(px, peer, DEALT + slot, turn);
    } else {
        if (px_thread() == 0) px_wait(px, root, DEALT + slot, turn);
        __syncthreads();
    }
}
""")
BLOCKS, THREADS = 128, 512


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    """tensor [W, M, N] on src, a template [M, N] elsewhere -> [M, N]: chunk r of src's tensor, fresh, on rank r.

    A leading dimension of k·W on src is split into runs of k rows, which keep that dimension if k > 1.
    On GPUs the element size must be a multiple of two bytes.
    """
    chunk = tensor.shape
    if symm.rank == src:
        rows = tensor.shape[0] // symm.world
        chunk = tensor.shape[1:] if rows == 1 else torch.Size((rows, *tensor.shape[1:]))
    if tensor.is_cuda:
        # The root of one call is a receiver in the next, so every rank alternates between the two results.
        mine = symm.out(chunk, tensor.dtype, "mine")
        halves = mine.nbytes // 2
        blocks = min(max(-(-halves // (8 * THREADS)), 1), BLOCKS)
        kernels().scatter[blocks, THREADS](symm.px, tensor.contiguous(), mine, halves, src)
        return mine
    # The root changes from call to call, so every rank alternates between the two buffers.
    dealt = symm.out((symm.world, *chunk), tensor.dtype, "dealt", ring=2)
    if symm.rank == src:
        dealt.copy_(tensor.reshape(dealt.shape))
    symm.barrier()
    return symm.peers(dealt)[src][symm.rank].clone()
