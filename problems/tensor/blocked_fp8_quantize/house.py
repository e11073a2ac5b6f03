"""House kernel: quantisation to E4M3 in one launch, which stores codes and scales at their places at every rank.

A warp keeps the scales of 128 words and stores them together, because single stores of 4 bytes cross the link slowly.
"""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.quantisation import E4M3, LARGEST_CODE, SIXTEEN

SOURCE = r"""
// Quantises blocks of elements to E4M3 codes, and stores codes and scales at their places on all ranks. x: [16 words]; codes:
// [W][words] of 16 bytes and scales: [W][words / lanes], symmetric. A lane has 16 elements at a time. `lanes` lanes (a power of
// two) have a block of elements, and find its maximum by shuffles. A warp has 128 consecutive words and stores all their scales
// together, because single stores of 4 bytes would cross the link slowly.
extern "C" __global__ void __launch_bounds__(256, 2) quantise_blocks(Px px, const TYPE* x, uint4* codes, float* scales, i64 words,
        int lanes, float largest_code) {
    const int STEPS = 4, lane = threadIdx.x % 32, blocks = 32 / lanes;  // blocks of elements in one step
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 warp = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = (i64)gridDim.x * blockDim.x / 32;
    for (i64 base = warp * 32 * STEPS; base < words; base += warps * 32 * STEPS) {  // the same in all lanes, because they shuffle
        float value[STEPS][16], scale[STEPS];
        #pragma unroll  // all loads are in flight before the first comparison
        for (int k = 0; k < STEPS; ++k) load16(x, 16 * (base + 32 * k + lane), 16 * words, value[k]);
        #pragma unroll
        for (int k = 0; k < STEPS; ++k) {
            float top = 0;
            #pragma unroll
            for (int e = 0; e < 16; ++e) top = fmaxf(top, fabsf(value[k][e]));
            for (int away = lanes / 2; away > 0; away /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, away));
            scale[k] = __fdiv_rn(top, largest_code);
            // The reciprocal of a tiny scale would be infinite, so the values of such blocks are multiplied by 2^100 first.
            const float lift = top < 0x1p-100f ? 0x1p100f : 1.0f;
            const float inverse = top == 0 ? 0.0f : __fdiv_rn(largest_code, top * lift);
            #pragma unroll
            for (int e = 0; e < 16; ++e) value[k][e] = value[k][e] * lift * inverse;
            const i64 word = base + 32 * k + lane;
            if (word >= words) continue;
            const uint4 sent = to_e4m3(value[k]);
            for (int away = 1; away <= px.world; ++away)  // this rank's own copy last
                px_st16(px_at(px, (px.rank + away) % px.world, codes) + px.rank * words + word, sent);
        }
        for (int first = 0; first < STEPS * blocks; first += 32) {
            const int at = first + lane;  // index among this warp's scales
            float mine = 0;
            #pragma unroll
            for (int k = 0; k < STEPS; ++k) {
                const float found = __shfl_sync(0xffffffffu, scale[k], at % blocks * lanes);
                if (at / blocks == k) mine = found;
            }
            const i64 block = base / lanes + at;
            if (at >= STEPS * blocks || block * lanes >= words) continue;
            for (int away = 1; away <= px.world; ++away)
                px_at(px, (px.rank + away) % px.world, scales)[px.rank * (words / lanes) + block] = mine;
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // all ranks' codes and scales have arrived
}
"""
kernel_for = cuda.lazy(SIXTEEN + E4M3 + SOURCE)
SIZES = (16, 32, 64, 128, 256, 512)
"""Block sizes that the kernel supports: from one lane to a warp."""
BLOCKS, THREADS = 256, 256
WORDS = 4
"""Words of 16 elements that a thread has in flight."""

symm.reserve(2 << 30)  # two results of the largest sizes


def solution(local_tensor: torch.Tensor, block_size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """local_tensor [M, N] -> codes [W·M, N] float8_e4m3fn and scales [W·M, N/block_size] float32 of all ranks, on every rank.

    A block is a run of block_size elements of a row; its scale is its largest magnitude / 448.

    Raises:
        ValueError: block_size does not divide N.
    """
    rows, columns = local_tensor.shape
    if columns % block_size:
        raise ValueError(f"{columns} columns do not divide into blocks of {block_size}")
    x = local_tensor.contiguous()
    if not x.is_cuda or x.dtype not in cuda.FLOATS or block_size not in SIZES:
        return in_torch(x, block_size)
    kernel = kernel_for(x.dtype).quantise_blocks
    # Two of each are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the results
    # of call e before that barrier.
    codes = symm.out((symm.world * rows, columns), torch.uint8, "codes")
    scales = symm.out((symm.world * rows, columns // block_size), torch.float32, "scales")
    words = x.numel() // 16
    blocks = min(max(-(-words // (THREADS * WORDS)), 1), BLOCKS)
    kernel[blocks, THREADS](symm.px, x, codes.data_ptr(), scales, words, block_size // 16, LARGEST_CODE)
    return codes.view(torch.float8_e4m3fn), scales


def in_torch(x: torch.Tensor, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantises on CPU ranks, or for unusual block sizes; each rank copies the codes and scales of all ranks."""
    values = x.reshape(-1, block_size).float()
    scales = values.abs().amax(dim=1) / LARGEST_CODE
    codes = (values / torch.where(scales == 0, 1.0, scales)[:, None]).clamp_(-LARGEST_CODE, LARGEST_CODE)
    bytes_here = codes.to(torch.float8_e4m3fn).view(torch.uint8).view(x.shape)
    all_codes = symm.peers(symm.stage(bytes_here, "codes"))
    all_scales = symm.peers(symm.stage(scales.view(x.shape[0], -1), "scales"))
    symm.barrier()
    return torch.cat(all_codes).view(torch.float8_e4m3fn), torch.cat(all_scales)
