"""House kernel: mean reduce-scatter with RMSNorm; owners add and normalise a part of rows while the next is pushed."""

import torch

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
#define KEPT 3
// Returns the sum over all ranks of one word of a row that this rank owns.
template <class T> static __device__ PxSum<T> sum_of(const Px& px, const T* x, const uint4* staged, i64 rows, i64 width,
        i64 words, i64 row, i64 word) {
    const uint4 mine = px_ld_part(x + (px.rank * rows + row) * width, word * (16 / sizeof(T)), width);
    PxSum<T> total;
    for (int first = 0; first < px.world; first += 4) {
        uint4 part[4];
        #pragma unroll  // four loads are in flight before the first addition
        for (int k = 0; k < 4; ++k)
            if (first + k < px.world)
                part[k] = first + k == px.rank ? mine : px_ld16(staged + ((first + k) * rows + row) * words + word);
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            if (first + k < px.world) total.add(part[k]);
    }
    return total;
}
// Sends rows to their owners, which average them over the ranks and normalise the means. x: [W (owners)][rows][width]; staged:
// [W (senders)][rows][words] of 16 bytes, symmetric; y: [rows][width]. Block b works on the rows of range part * gridDim.x + b
// and waits only for block b of the other ranks. While one part travels, the previous part is added up. `lanes` threads share a
// row: a warp or the whole block. A lane keeps its first KEPT words of sums in registers. It reads and adds up further words of a
// long row again.
extern "C" __global__ void __launch_bounds__(384, 2) scatter_and_norm(Px px, const TYPE* x, const TYPE* gamma, uint4* staged,
        TYPE* y, i64 rows, i64 width, float eps, int lanes, int parts) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // all ranks have ended launch turn - 2: its buffers may be written again
    __shared__ float sums[32];
    const int each = 16 / sizeof(TYPE), lane = threadIdx.x % lanes, team = threadIdx.x / lanes, teams = blockDim.x / lanes;
    const i64 words = (width + each - 1) / each, ranges = (i64)parts * gridDim.x, length = (rows + ranges - 1) / ranges;
    const float scale = 1.0f / px.world;
    for (int part = 0; part <= parts; ++part) {
        if (part < parts) {
            const i64 range = (i64)part * gridDim.x + blockIdx.x, low = min(range * length, rows), high = min(low + length, rows);
            const u32 all = (high - low) * words;
            for (int away = 1; away < px.world; ++away) {
                const int owner = (px.rank + away) % px.world;
                const TYPE* from = x + (owner * rows + low) * width;
                uint4* there = px_at(px, owner, staged) + (px.rank * rows + low) * words;
                for (u32 i = threadIdx.x; i < all; i += 4 * blockDim.x) {
                    uint4 sent[4];
                    #pragma unroll  // all loads are in flight before the first store
                    for (int k = 0; k < 4; ++k) {
                        const u32 at = i + k * blockDim.x, row = at / (u32)words;
                        if (at < all) sent[k] = px_ld_part(from + row * width, (at - row * words) * each, width);
                    }
                    #pragma unroll
                    for (int k = 0; k < 4; ++k)
                        if (i + k * blockDim.x < all) px_st16(there + i + k * blockDim.x, sent[k]);
                }
            }
            __syncthreads();
            const int peer = px_thread();
            if (peer < px.world && peer != px.rank) px_signal(px, peer, 300 + slot, 16 * turn + part + 1);
        }
        if (part == 0) continue;
        const int peer = px_thread();
        if (peer < px.world && peer != px.rank) px_wait(px, peer, 300 + slot, 16 * turn + part);
        __syncthreads();  // all ranks' rows of the previous part have arrived
        const i64 range = (part - 1ll) * gridDim.x + blockIdx.x, low = min(range * length, rows), high = min(low + length, rows);
        for (i64 first = low; first < high; first += teams) {
            const i64 row = first + team;
            float kept[KEPT][8], squares = 0;
            if (row < high) {
                #pragma unroll
                for (int k = 0; k < KEPT; ++k)
                    if (lane + k * lanes < words) {
                        const PxSum<TYPE> total = sum_of(px, x, staged, rows, width, words, row, lane + k * lanes);
                        #pragma unroll
                        for (int e = 0; e < each; ++e) {
                            kept[k][e] = total.sum[e] * scale;  // 0 beyond the row's end
                            squares += kept[k][e] * kept[k][e];
                        }
                    }
                for (i64 word = lane + KEPT * lanes; word < words; word += lanes) {
                    const PxSum<TYPE> total = sum_of(px, x, staged, rows, width, words, row, word);
                    #pragma unroll
                    for (int e = 0; e < each; ++e) squares += total.sum[e] * scale * (total.sum[e] * scale);
                }
            }
            squares = px_warp_sum(squares);
            if (lanes > 32) {
                __syncthreads();  // all threads have read the previous row's sums
                if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
                __syncthreads();
                squares = 0;
                for (int warp = 0; warp < blockDim.x / 32; ++warp) squares += sums[warp];
            }
            if (row >= high) continue;
            const float inverse = rsqrtf(squares / width + eps);
            for (i64 word = lane, k = 0; word < words; word += lanes, ++k) {
                float gain[8], out[8];
                px_unpack<TYPE>(px_ld_part(gamma, word * each, width), gain);
                if (k < KEPT) {
                    #pragma unroll
                    for (int slot_of = 0; slot_of < KEPT; ++slot_of)
                        if (slot_of == k)
                            #pragma unroll
                            for (int e = 0; e < each; ++e) out[e] = kept[slot_of][e] * inverse * gain[e];
                } else {
                    const PxSum<TYPE> total = sum_of(px, x, staged, rows, width, words, row, word);
                    #pragma unroll
                    for (int e = 0; e < each; ++e) out[e] = total.sum[e] * scale * inverse * gain[e];
                }
                px_st_part(y + row * width, word * each, width, px_pack<TYPE>(out));
            }
        }
    }
}
""")
BLOCKS, THREADS, PARTS = 264, 384, 8
WARP_WORDS = 96
"""16-byte words of a row up to which one warp works on a row; a whole block works on a longer row."""

symm.reserve(4 << 30)  # two results of the largest sizes


def solution(rs_input_1d: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
    """rs_input_1d [W·rows·H] (chunk r belongs to rank r), gamma [H] -> [rows, H]: the normalised mean of chunk r.

    W divides the input's length and H divides a chunk. Sums and norm are float32 and rounded once.
    """
    x = rs_input_1d.contiguous()
    width = gamma.numel()
    rows = x.numel() // (symm.world * width)
    if not x.is_cuda:
        peers = symm.peers(symm.stage(x.view(symm.world, rows, width)))
        symm.barrier()
        total = sum(peer[symm.rank].float() for peer in peers) / symm.world
        inverse = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps)
        return (total * inverse * gamma).to(x.dtype)
    words = -(-width * x.element_size() // 16)
    result = x.new_empty((rows, width))
    # Two buffers: a rank writes only after all ranks have left the previous call, so they have read the buffer of two
    # calls ago.
    staged = symm.out((symm.world, rows, words, 4), torch.int32, "staged", ring=2)
    lanes = 32 if words <= WARP_WORDS else THREADS
    teams = THREADS // lanes  # rows that a block has at once
    blocks = min(max(-(-rows // teams), 1), BLOCKS)
    parts = min(max(rows // (blocks * teams * 2), 1), PARTS)
    kernel = kernel_for(x.dtype).scatter_and_norm[blocks, THREADS]
    kernel(symm.px, x, gamma.contiguous(), staged, result, rows, width, eps, lanes, parts)
    return result
