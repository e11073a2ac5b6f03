"""House kernel: reduce; every rank but the root adds up one share and sends the root this partial sum.

On CPU ranks the root reads the peers' memory.
"""

import torch

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Writes the sum of all ranks' x to the root's y, and a copy of x to y on the other ranks. These are the helpers, in rotated
// order from the root on. Helper h adds up share h of all helpers' tensors and stores this partial sum at the root, which adds
// its own tensor. So the root receives the bytes of one tensor only. Block b works on the same words of every share on all ranks,
// and the pieces of a share follow one another through these three steps. In slot GIVEN + b a helper signals to another how many
// pieces it has sent, and in slot SUMMED + b to the root how many pieces it has added up. PIECE has numbers for up to 15 pieces a
// launch. given: [W (senders)][share] words of 16 bytes; partial: a word for each word of x; both symmetric. x, y: n elements.
#define GIVEN 256
#define SUMMED 512
#define PIECE(turn, count) (16 * (turn) + (count))
extern "C" __global__ void __launch_bounds__(512) reduce(Px px, const TYPE* x, uint4* given, uint4* partial, TYPE* y, i64 n,
        int root, int pieces) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // all ranks have ended launch turn - 2: its buffers may be written again
    const i64 step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    if (px.world == 1) {
        px_move(y, x, n, first, step);
        return;
    }
    const int each = 16 / sizeof(TYPE), helpers = px.world - 1, thread = px_thread();
    const int place = (px.rank - root + px.world) % px.world - 1;  // -1: the root
    const i64 words = (n + each - 1) / each, share = (words + helpers - 1) / helpers, length = (share + pieces - 1) / pieces;
    if (place < 0) {
        for (int piece = 0; piece < pieces; ++piece) {
            if (thread < px.world && thread != root) px_wait(px, thread, SUMMED + slot, PIECE(turn, piece + 1));
            __syncthreads();
            const i64 last = min((piece + 1) * length, share);
            for (int helper = 0; helper < helpers; ++helper)
                for (i64 i = piece * length + first; i < last && helper * share + i < words; i += step) {
                    const i64 word = helper * share + i;
                    const uint4 mine = px_ld_part(x, word * each, n), others = px_ld16(partial + word);
                    PxSum<TYPE> total;
                    total.add(mine);
                    total.add(others);
                    px_st_part(y, word * each, n, total.rounded());
                }
        }
        return;
    }
    uint4* at_root = px_at(px, root, partial);
    for (int piece = 0; piece <= pieces; ++piece) {
        if (helpers > 1 && piece < pieces) {  // send the other helpers their words
            const i64 last = min((piece + 1) * length, share);
            for (int away = 1; away < helpers; ++away) {
                const int helper = (place + away) % helpers;
                uint4* there = px_at(px, (root + 1 + helper) % px.world, given) + px.rank * share;
                for (i64 i = piece * length + first; i < last; i += 4 * step) {
                    uint4 part[4];
                    #pragma unroll  // all loads are in flight before the first store
                    for (int k = 0; k < 4; ++k) part[k] = px_ld_part(x, (helper * share + i + k * step) * each, n);
                    #pragma unroll
                    for (int k = 0; k < 4 && i + k * step < last; ++k) {
                        px_st16(there + i + k * step, part[k]);
                        px_st_part(y, (helper * share + i + k * step) * each, n, part[k]);
                    }
                }
            }
            __syncthreads();
            if (thread < px.world && thread != root && thread != px.rank)
                px_signal(px, thread, GIVEN + slot, PIECE(turn, piece + 1));
        }
        if (piece == 0) continue;  // then add up the previous piece, which has had time to arrive
        if (helpers > 1) {
            if (thread < px.world && thread != root && thread != px.rank) px_wait(px, thread, GIVEN + slot, PIECE(turn, piece));
            __syncthreads();
        }
        const i64 last = min(piece * length, share);
        for (i64 i = (piece - 1) * length + first; i < last && place * share + i < words; i += step) {
            const i64 word = place * share + i;
            const uint4 mine = px_ld_part(x, word * each, n);
            px_st_part(y, word * each, n, mine);
            PxSum<TYPE> total;
            for (int source = 0; source < px.world; ++source)  // in the order of the ranks
                if (source != root) total.add(source == px.rank ? mine : px_ld16(given + source * share + i));
            px_st16(at_root + word, total.rounded());
        }
        __syncthreads();
        if (thread == 0) px_signal(px, root, SUMMED + slot, PIECE(turn, piece));
    }
}
""")
BLOCKS, THREADS = 128, 512
LARGE = 16 << 20
"""Bytes from which two half as large blocks share a multiprocessor: one sends while the other waits for a signal."""
LEAST = 4
"""Least words of a piece per thread, so that all threads work in every step."""

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    """tensor [M, N] -> [M, N]: the elementwise sum over all ranks on dst, a copy of the rank's own tensor elsewhere."""
    if tensor.is_cuda:
        helpers, each = max(symm.world - 1, 1), 16 // tensor.element_size()
        words = -(-tensor.numel() // each)
        # Two buffers each: a rank writes only after all ranks have left the previous call, so they have read the
        # buffers of two calls ago.
        given = symm.out((symm.world, -(-words // helpers) if helpers > 1 else 0, each), tensor.dtype, "given", ring=2)
        partial = symm.out((words, each), tensor.dtype, "partial", ring=2)
        most, threads = (2 * BLOCKS, THREADS // 2) if tensor.nbytes >= LARGE else (BLOCKS, THREADS)
        blocks = min(max(-(-words // (helpers * threads)), 1), most)
        pieces = min(max(words // (helpers * blocks * threads * LEAST), 1), 15)
        kernel = kernel_for(tensor.dtype).reduce[blocks, threads]
        result = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        kernel(symm.px, tensor.contiguous(), given, partial, result, tensor.numel(), dst, pieces)
        return result
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    if symm.rank != dst:
        return tensor.clone()
    total = peers[0].to(torch.float32, copy=True)
    for peer in peers[1:]:
        total += peer
    return total.to(tensor.dtype)
