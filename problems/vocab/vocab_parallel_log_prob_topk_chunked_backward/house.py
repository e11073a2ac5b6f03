"""House kernel: gradient of filtered log-probabilities; ranks find a row's cut together, and write their columns."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda
from sandbox.kit.blocks.truncation import Cut, find_cut

kernel_for = cuda.lazy(r"""
// The whole block calls this: returns the column of the `count`-th value of a row that equals `least`; -1 if count is 0 or there
// are fewer. Each warp counts in its own run of columns.
template <class T> static __device__ i64 last_of(const T* from, i64 columns, float least, u32 count) {
    __shared__ u32 counts[32];
    __shared__ i64 found;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const i64 run = (columns + blockDim.x - 1) / blockDim.x * 32, low = warp * run, high = min(low + run, columns);
    __syncthreads();  // all threads have ended the previous row
    if (threadIdx.x == 0) found = -1;
    if (count) {
        u32 own = 0;
        for (i64 base = low; base < high; base += 32) own += base + lane < high && to_float(from[base + lane]) == least;
        own = (u32)px_warp_sum(own);
        if (lane == 0) counts[warp] = own;
        __syncthreads();
        u32 before = 0;
        for (int w = 0; w < warp; ++w) before += counts[w];
        if (before < count && before + own >= count)
            for (i64 base = low; before < count; base += 32) {
                const u32 equal = __ballot_sync(0xffffffffu, base + lane < high && to_float(from[base + lane]) == least);
                const u32 number = before + __popc(equal & (0xffffffffu >> (31 - lane)));
                if (number == count && equal >> lane & 1) found = base + lane;
                before += __popc(equal);
            }
    }
    __syncthreads();
    return found;
}
// Writes gradient: [rows][columns], the vocabulary's columns from `first` on, from logits of the same shape. A block works on one
// row at a time. The gradient is 0 for values below the row's `least`, and for the first `dropped` values that equal it.
extern "C" __global__ void __launch_bounds__(512) write_rows(const TYPE* logits, const float* least, const float* log_sum,
        const i64* dropped, const i64* target, const float* incoming, float* gradient, i64 rows, i64 columns, i64 first) {
    const int each = 16 / sizeof(TYPE);
    const i64 stride = (i64)blockDim.x * each;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const TYPE* from = logits + row * columns;
        float* to = gradient + row * columns;
        const float low = least[row], log_all = log_sum[row], factor = incoming[row];
        const i64 column = target[row] - first, edge = last_of(from, columns, low, (u32)dropped[row]);
        for (i64 i = (i64)threadIdx.x * each; i < columns; i += 4 * stride) {
            uint4 part[4];
            #pragma unroll  // all loads are in flight before the first store
            for (int p = 0; p < 4; ++p) part[p] = px_ld_part(from, i + p * stride, columns);
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                const i64 at = i + p * stride;
                float value[8], peak = -px_infinity();
                px_unpack<TYPE>(part[p], value);
                #pragma unroll
                for (int e = 0; e < each; ++e) peak = fmaxf(peak, value[e]);
                const int hot = (int)max(min(column - at, (i64)each), -1ll), gone = (int)max(min(edge - at, (i64)each), -1ll);
                #pragma unroll
                for (int e = 0; e < each; ++e) {
                    if (peak < low || value[e] < low || (value[e] == low && e <= gone)) value[e] = 0;
                    else value[e] = factor * ((e == hot) - (each == 4 ? expf(value[e] - log_all) : px_exp(value[e] - log_all)));
                }
                #pragma unroll
                for (int e = 0; e < each; e += 4) px_st_part(to, at + e, columns, px_pack<float>(value + e));
            }
        }
    }
}
""")
BLOCKS, THREADS = 528, 512


def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    grad_output: torch.Tensor,
    tp_group: dist.ProcessGroup | None = None,
    top_k: int | None = None,
    top_p: float | None = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    """vocab_parallel_logits [B, S, V/W], target [B, S] int64, grad_output [B, S] -> gradient [B, S, V/W] float32.

    grad_output · (one-hot - filtered softmax) inside the kept set, zero outside. The world size must divide B·S and
    B·max(1, chunk_size), as kernels that distribute rows in chunks require; chunks change nothing here.
    """
    tokens, world = target.numel(), dist.get_world_size(tp_group)
    chunk = target.shape[0] * max(1, chunk_size)
    if tokens % world or chunk % world:
        raise ValueError(f"{tokens} tokens in chunks of {chunk} cannot be shared equally by {world} ranks")
    logits, flat = vocab_parallel_logits.flatten(0, 1).contiguous(), target.flatten()
    incoming = grad_output.flatten().float()
    if logits.is_cuda:
        kernel_for(logits.dtype)  # compiled before the ranks exchange
    cut = find_cut(logits, flat, tp_group, top_k, top_p)
    first = dist.get_rank(tp_group) * logits.shape[1]
    if not logits.is_cuda:
        return by_library(logits, cut, flat - first, incoming).view(vocab_parallel_logits.shape)
    gradient = torch.empty_like(logits, dtype=torch.float32)
    if gradient.numel():
        launch = kernel_for(logits.dtype).write_rows[min(tokens, BLOCKS), THREADS]
        given = logits, cut.least, cut.log_sum, cut.dropped, flat.contiguous(), incoming, gradient
        launch(*given, *logits.shape, first)
    return gradient.view(vocab_parallel_logits.shape)


def by_library(logits: torch.Tensor, cut: Cut, column: torch.Tensor, incoming: torch.Tensor) -> torch.Tensor:
    """Computes the gradient [n, V/W] float32 by library calls. column: the targets', relative to this rank's first."""
    wide = logits.float()
    outside = wide < cut.least[:, None]
    equal = wide == cut.least[:, None]  # of them the first may be dropped
    outside |= equal & (equal.cumsum(dim=1, dtype=torch.int32) <= cut.dropped[:, None])
    gradient = (wide - cut.log_sum[:, None]).exp_().neg_()
    here = (column >= 0) & (column < logits.shape[1])
    gradient.scatter_add_(1, column.masked_fill(~here, 0)[:, None], here.to(gradient.dtype)[:, None])
    gradient *= incoming[:, None]
    return gradient.masked_fill_(outside, 0)
