"""House kernel: broadcast; the root sends each other rank one share, and these ranks send it to one another."""

import torch

from sandbox.kit import cuda, symm

kernels = cuda.lazy(r"""
// Copies the root's tensor to all ranks. x: n halves (two bytes each), read on the root only; y: n halves, the result, symmetric.
// A word has 16 bytes. Helpers are all ranks except the root. The root sends each helper one share of the words, in pieces, and
// the helper passes each piece on to the other helpers. Block b works on the same words of every share on all ranks. In slot
// PASSED + b a rank signals how many pieces of a share it has sent. PIECE has numbers for up to 7 pieces a launch.
#define PASSED 128
#define PIECE(turn, count) (8 * (turn) + (count))
extern "C" __global__ void __launch_bounds__(512) broadcast(Px px, const u16* x, u16* y, i64 n, int root, int pieces) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // all ranks have ended launch turn - 2: its buffers may be written again
    const i64 step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    if (px.world == 1) {
        px_move(y, x, n, first, step);
        return;
    }
    const int helpers = px.world - 1, place = (px.rank - root + px.world) % px.world - 1;  // -1: the root
    const i64 words = (n + 7) / 8, share = ((words + helpers - 1) / helpers + 31) / 32 * 32;
    const i64 length = (share + pieces - 1) / pieces;
    for (int piece = 0; piece < pieces; ++piece) {
        const i64 last = min((piece + 1) * length, share);
        if (place < 0) {
            for (i64 i = piece * length + first; i < last; i += 4 * step) {
                for (int helper = 0; helper < helpers; ++helper) {
                    u16* there = px_at(px, (root + 1 + helper) % px.world, y);
                    uint4 part[4];
                    #pragma unroll  // all loads are in flight before the first store
                    for (int k = 0; k < 4; ++k)
                        if (i + k * step < last) part[k] = px_ld_part(x, 8 * (helper * share + i + k * step), n);
                    #pragma unroll
                    for (int k = 0; k < 4; ++k)
                        if (i + k * step < last) {
                            px_st_part(there, 8 * (helper * share + i + k * step), n, part[k]);
                            px_st_part(y, 8 * (helper * share + i + k * step), n, part[k]);
                        }
                }
            }
            __syncthreads();
            if (px_thread() < helpers) px_signal(px, (root + 1 + px_thread()) % px.world, PASSED + slot, PIECE(turn, piece + 1));
        } else if (helpers > 1) {
            if (px_thread() == 0) px_wait(px, root, PASSED + slot, PIECE(turn, piece + 1));
            __syncthreads();  // this piece of this rank's share has arrived
            for (i64 i = place * share + piece * length + first; i < place * share + last; i += 4 * step) {
                uint4 part[4];
                #pragma unroll
                for (int k = 0; k < 4; ++k)
                    if (i + k * step < place * share + last) part[k] = px_ld_part(y, 8 * (i + k * step), n);
                for (int away = 1; away < helpers; ++away) {
                    u16* there = px_at(px, (root + 1 + (place + away) % helpers) % px.world, y);
                    #pragma unroll
                    for (int k = 0; k < 4; ++k)
                        if (i + k * step < place * share + last) px_st_part(there, 8 * (i + k * step), n, part[k]);
                }
            }
        }
    }
    if (place < 0) return;
    __syncthreads();
    const int peer = px_thread();
    if (peer < px.world && peer != px.rank) {
        if (peer != root) px_signal(px, peer, PASSED + slot, PIECE(turn, pieces));
        px_wait(px, peer, PASSED + slot, PIECE(turn, pieces));  // the share from this peer has arrived
    }
    __syncthreads();
}
""")
BLOCKS, THREADS = 128, 512
LEAST = 4
"""Least words of a piece per thread. A receiver waits for a whole piece before it forwards it."""


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: rank src's tensor, as a fresh tensor on every rank (a copy on src itself).

    On GPUs the element size must be a multiple of two bytes.
    """
    # The root changes from call to call, so every rank alternates between the two buffers.
    shared = symm.out(tensor.shape, tensor.dtype, "root")
    if tensor.is_cuda:
        halves = tensor.nbytes // 2
        blocks = min(max(-(-halves // (8 * THREADS)), 1), BLOCKS)
        helpers = max(symm.world - 1, 1)
        share = halves // (8 * helpers)  # words that a receiver passes on
        pieces = 1 if helpers == 1 else min(max(share // (blocks * THREADS * LEAST), 1), 7)
        kernels().broadcast[blocks, THREADS](symm.px, tensor.contiguous(), shared, halves, src, pieces)
        return shared
    if symm.rank == src:
        shared.copy_(tensor)
        symm.barrier()
        return tensor.clone()
    symm.barrier()
    return symm.peers(shared)[src].clone()
