"""House kernel: FP8 all-gather; one launch computes the scale, one sends E4M3 codes to all ranks and expands them."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.quantisation import E4M3, SIXTEEN, next_scale
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

SOURCE = r"""
// Stores the values of 16 codes, code * scale, from element `first` of `to` on.
template <class T> static __device__ void expand(uint4 code, float scale, T* to, i64 first, i64 n) {
    float value[16];
    from_e4m3(code, value);
    #pragma unroll
    for (int e = 0; e < 16; ++e) value[e] = __fmul_rn(value[e], scale);
    store16(to, first, n, value);
}
// Gathers the ranks' x, rounded to E4M3, in y. x: [n]; codes: [W (senders)][words] of 16 bytes, symmetric; scales:
// [W (senders)][blocks], symmetric; y: [W][n], local. A thread quantises 16 elements at a time, and stores their codes at all
// peers and their values in its own y. Block b has the words of range part * gridDim.x + b and depends only on block b of the
// other ranks. While one part travels, the previous part is expanded.
extern "C" __global__ void __launch_bounds__(512, 2) all_gather_codes(Px px, const TYPE* x, const float* own_scale, uint4* codes,
        float* scales, TYPE* y, i64 n, i64 words, int parts) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_enter(px, slot, turn);  // all ranks have expanded the codes of two launches ago
    const int peer = px_thread();
    const bool is_peer = peer < px.world && peer != px.rank;
    const float scale = *own_scale, inverse = __fdiv_rn(1.0f, scale);
    if (is_peer) px_at(px, peer, scales)[px.rank * gridDim.x + blockIdx.x] = scale;
    const i64 step = 2 * blockDim.x, all = step * parts * gridDim.x, length = (words + all - 1) / all * step;
    for (int part = 0; part <= parts; ++part) {
        if (part < parts) {
            const i64 low = min(((i64)part * gridDim.x + blockIdx.x) * length, words), high = min(low + length, words);
            for (i64 i = low + threadIdx.x; i < high; i += 2 * blockDim.x) {
                float value[2][16];
                #pragma unroll  // all loads are in flight before the first quotient
                for (int k = 0; k < 2; ++k) load16(x, 16 * min(i + k * (i64)blockDim.x, high), n, value[k]);
                #pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const i64 word = i + k * (i64)blockDim.x;
                    if (word >= high) break;
                    #pragma unroll
                    for (int e = 0; e < 16; ++e) value[k][e] = quotient(value[k][e], scale, inverse);
                    const uint4 sent = to_e4m3(value[k]);
                    for (int away = 1; away < px.world; ++away)
                        px_st16(px_at(px, (px.rank + away) % px.world, codes) + px.rank * words + word, sent);
                    expand(sent, scale, y + px.rank * n, 16 * word, n);
                }
            }
            __syncthreads();
            if (is_peer) px_signal(px, peer, 300 + slot, 16 * turn + part + 1);
        }
        if (part == 0) continue;
        if (is_peer) px_wait(px, peer, 300 + slot, 16 * turn + part);
        __syncthreads();  // all ranks' codes of the previous part have arrived
        const i64 low = min(((part - 1ll) * gridDim.x + blockIdx.x) * length, words), high = min(low + length, words);
        for (i64 i = low + threadIdx.x; i < high; i += blockDim.x) {
            for (int first = 1; first < px.world; first += 4) {
                uint4 got[4];
                #pragma unroll  // four loads are in flight before the first store
                for (int k = 0; k < 4; ++k)
                    if (first + k < px.world) got[k] = px_ld16(codes + (px.rank + first + k) % px.world * words + i);
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                    if (first + k >= px.world) break;
                    const int source = (px.rank + first + k) % px.world;
                    const float theirs = ((const volatile float*)scales)[source * gridDim.x + blockIdx.x];
                    expand(got[k], theirs, y + source * n, 16 * i, n);
                }
            }
        }
    }
}
"""
kernel_for = cuda.lazy(SIXTEEN + E4M3 + SOURCE)
BLOCKS, THREADS, PARTS = 264, 512, 8
"""A signal's value is 16 times the launch's number plus the part. Block b uses slots b and b + 300."""
Pair = tuple[torch.Tensor, torch.Tensor]


def solution(flat_param_shard: torch.Tensor, amax_history: torch.Tensor) -> Pair:
    """flat_param_shard [P], amax_history [16] bfloat16 -> (the FP8-rounded shards of all ranks in order [W·P], history [16]).

    Each rank has its own scale. The result has the same bits as a gather of rounded shards.
    """
    if not flat_param_shard.is_cuda:
        return in_torch(flat_param_shard, amax_history)
    kernel_for(flat_param_shard.dtype)  # before the ranks exchange: see `cuda.lazy`
    x, n = flat_param_shard.contiguous(), flat_param_shard.numel()
    words = -(-n // 16)
    blocks = min(max(-(-words // THREADS), 1), BLOCKS)
    # Two of each are enough: a rank sends in call e+2 only after all ranks have begun call e+1.
    codes = symm.out((symm.world, words, 16), torch.uint8, "codes", ring=2)
    scales = symm.out((symm.world, blocks), torch.float32, "scales", ring=2)
    results = x.new_empty(symm.world * n), torch.empty_like(amax_history)
    write(x, amax_history.contiguous(), (codes, scales), results, symm.connect())
    return results


@recorded
def write(x: torch.Tensor, before: torch.Tensor, room: Pair, results: Pair, team: Team) -> None:
    """Writes the results for the history before. room: codes and scales."""
    (codes, scales), (full, history) = room, results
    _, scale = next_scale(x, before, history)
    (_, words, _), blocks = codes.shape, scales.shape[1]
    parts = min(-(-words // (blocks * THREADS * 2)), PARTS)
    kernel = kernel_for(x.dtype).all_gather_codes[blocks, THREADS]
    kernel(team.px, x, scale, codes.data_ptr(), scales, full, x.numel(), words, parts)


def in_torch(flat_param_shard: torch.Tensor, amax_history: torch.Tensor) -> Pair:
    """Computes `solution` on CPU ranks; each rank reads the codes of all ranks."""
    history, scale = next_scale(flat_param_shard, amax_history)
    codes = (flat_param_shard.float() / scale).to(torch.float8_e4m3fn).view(torch.uint8)
    all_codes, all_scales = symm.peers(symm.stage(codes, "codes")), symm.peers(symm.stage(scale, "scale"))
    symm.barrier()
    values = [
        (code.view(torch.float8_e4m3fn).float() * their).to(flat_param_shard.dtype)
        for code, their in zip(all_codes, all_scales, strict=True)
    ]
    return torch.cat(values), history
