"""House kernel: FP8 reduce-scatter; one launch computes the scale, one sends E4M3 codes to owners and adds them up."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.quantisation import E4M3, SIXTEEN, next_scale
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

SOURCE = r"""
// The whole block calls this: quantises words low to high of each owner's chunk, and stores the codes at the owner.
template <class T> static __device__ void send(const Px& px, const T* x, uint4* codes, float scale, i64 n, i64 words,
        i64 low, i64 high) {
    const float inverse = __fdiv_rn(1.0f, scale);
    for (int away = 1; away <= px.world; ++away) {
        const int owner = (px.rank + away) % px.world;
        uint4* there = px_at(px, owner, codes) + px.rank * words;
        for (i64 i = low + threadIdx.x; i < high; i += 2 * blockDim.x) {
            float value[2][16];
            #pragma unroll  // all loads are in flight before the first quotient
            for (int k = 0; k < 2; ++k)
                load16(x + owner * n, 16 * min(i + k * (i64)blockDim.x, high), n, value[k]);
            #pragma unroll
            for (int k = 0; k < 2; ++k) {
                #pragma unroll
                for (int e = 0; e < 16; ++e) value[k][e] = quotient(value[k][e], scale, inverse);
                if (i + k * (i64)blockDim.x < high) px_st16(there + i + k * (i64)blockDim.x, to_e4m3(value[k]));
            }
        }
    }
}
// Writes the mean over the ranks of this rank's chunk of x, rounded to E4M3, to y. x: [W (owners)][n]; codes:
// [W (senders)][words] of 16 bytes, symmetric; scales: [W (senders)][blocks], symmetric; y: [n]. A thread quantises 16 elements
// at a time and stores their codes at the owner. Block b has the words of range part * gridDim.x + b and depends only on block b
// of the other ranks. While one part travels, the previous part is added up.
extern "C" __global__ void __launch_bounds__(512, 2) reduce_scatter_codes(Px px, const TYPE* x, const float* own_scale,
        uint4* codes, float* scales, TYPE* y, i64 n, i64 words, int parts, float inverse) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // all ranks have read the codes of two launches ago
    const int peer = px_thread();
    const bool is_peer = peer < px.world && peer != px.rank;
    const float scale = *own_scale;
    if (peer < px.world) px_at(px, peer, scales)[px.rank * gridDim.x + blockIdx.x] = scale;
    const i64 step = 2 * blockDim.x, all = step * parts * gridDim.x, length = (words + all - 1) / all * step;
    for (int part = 0; part <= parts; ++part) {
        if (part < parts) {
            const i64 low = min(((i64)part * gridDim.x + blockIdx.x) * length, words);
            send(px, x, codes, scale, n, words, low, min(low + length, words));
            __syncthreads();
            if (is_peer) px_signal(px, peer, 300 + slot, 16 * turn + part + 1);
        }
        if (part == 0) continue;
        if (is_peer) px_wait(px, peer, 300 + slot, 16 * turn + part);
        __syncthreads();  // all ranks' codes of the previous part have arrived
        const i64 low = min(((part - 1ll) * gridDim.x + blockIdx.x) * length, words), high = min(low + length, words);
        for (i64 i = low + threadIdx.x; i < high; i += blockDim.x) {
            float total[16] = {};
            for (int first = 0; first < px.world; first += 4) {
                uint4 got[4];
                #pragma unroll  // four loads are in flight before the first addition
                for (int k = 0; k < 4; ++k)
                    if (first + k < px.world) got[k] = px_ld16(codes + (first + k) * words + i);
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                    if (first + k >= px.world) break;
                    const float theirs = ((const volatile float*)scales)[(first + k) * gridDim.x + blockIdx.x];
                    float value[16];
                    from_e4m3(got[k], value);
                    #pragma unroll  // the baseline rounds each sender's value to the run dtype
                    for (int e = 0; e < 16; ++e) total[e] += to_float(from_float<TYPE>(__fmul_rn(value[e], theirs)));
                }
            }
            #pragma unroll
            for (int e = 0; e < 16; ++e) total[e] *= inverse;
            store16(y, 16 * i, n, total);
        }
    }
}
"""
kernel_for = cuda.lazy(SIXTEEN + E4M3 + SOURCE)
BLOCKS, THREADS, PARTS = 264, 512, 8
"""A signal's value is 16 times the launch's number plus the part. Block b uses slots b and b + 300."""
Pair = tuple[torch.Tensor, torch.Tensor]


def solution(flat_grads: torch.Tensor, amax_history: torch.Tensor) -> Pair:
    """flat_grads [W·P], amax_history [16] bfloat16 -> (the mean over ranks of the FP8-rounded gradients [P], history [16]).

    Each rank has its own scale. Sums are float32 and rounded once.
    """
    if not flat_grads.is_cuda:
        return in_torch(flat_grads, amax_history)
    kernel_for(flat_grads.dtype)  # before the ranks exchange: see `cuda.lazy`
    x, n = flat_grads.contiguous(), flat_grads.numel() // symm.world
    words = -(-n // 16)
    blocks = min(max(-(-words // THREADS), 1), BLOCKS)
    # Two of each are enough: a rank sends in call e+2 only after all ranks have begun call e+1.
    codes = symm.out((symm.world, words, 16), torch.uint8, "codes", ring=2)
    scales = symm.out((symm.world, blocks), torch.float32, "scales", ring=2)
    results = x.new_empty(n), torch.empty_like(amax_history)
    write(x, amax_history.contiguous(), (codes, scales), results, symm.connect())
    return results


@recorded
def write(x: torch.Tensor, before: torch.Tensor, room: Pair, results: Pair, team: Team) -> None:
    """Writes the results for the history before. room: codes and scales."""
    (codes, scales), (shard, history) = room, results
    _, scale = next_scale(x, before, history)
    (_, words, _), blocks = codes.shape, scales.shape[1]
    parts = min(-(-words // (blocks * THREADS * 2)), PARTS)
    kernel = kernel_for(x.dtype).reduce_scatter_codes[blocks, THREADS]
    kernel(team.px, x, scale, codes.data_ptr(), scales, shard, shard.numel(), words, parts, 1 / team.world)


def in_torch(flat_grads: torch.Tensor, amax_history: torch.Tensor) -> Pair:
    """Computes `solution` on CPU ranks; the owner reads the codes of all ranks."""
    history, scale = next_scale(flat_grads, amax_history)
    codes = (flat_grads.float() / scale).to(torch.float8_e4m3fn)
    mine = symm.stage(codes.view(torch.uint8).view(symm.world, -1), "codes")
    all_codes, all_scales = symm.peers(mine), symm.peers(symm.stage(scale, "scale"))
    symm.barrier()
    total = torch.zeros(mine.shape[1], dtype=torch.float32)
    for code, their in zip(all_codes, all_scales, strict=True):
        total += (code[symm.rank].view(torch.float8_e4m3fn).float() * their).to(flat_grads.dtype)
    return (total / symm.world).to(flat_grads.dtype), history
