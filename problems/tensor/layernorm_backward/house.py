"""House kernel: LayerNorm backward; one pass for both column sums; the last block of a strip exchanges its sums."""

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernel_for = cuda.lazy(r"""
// Writes the column sums of x * dy over all ranks to gamma, and those of dy to beta. x, dy: [rows][columns]. A strip is 32 words
// (of 16 bytes) of columns. Block (s, b) adds up the b-th run of rows in strip first_strip + s, and writes its sums to partial:
// [blocks of rows][strips][2][columns of a strip]. The last block of a strip to finish adds these up, always in the same order.
// It sends a column's two sums to every peer in a word of 16 bytes, and adds up the ranks' sums in rank order. done: a counter
// per strip, 0 before and after. boxes: [2 (turns)][W (senders)][columns] words of 16 bytes, symmetric. Two turns are enough: a
// rank that sends launch t+2 has received all words of launch t+1, so all ranks have read those of launch t.
extern "C" __global__ void __launch_bounds__(256) column_sums(Px px, const TYPE* x, const TYPE* dy, float* partial, u32* done,
        uint4* boxes, TYPE* gamma, TYPE* beta, i64 rows, i64 columns, i64 first_strip, i64 strips) {
    const int each = 16 / sizeof(TYPE), strip_columns = 32 * each, warps = blockDim.x / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __shared__ float sums[2][8 * 32 * 8];  // of 8 warps
    const i64 strip = first_strip + blockIdx.x, column = strip * strip_columns + lane * each;
    const i64 length = (rows + gridDim.y - 1) / gridDim.y, low = blockIdx.y * length, high = min(low + length, rows);
    float with_x[8], alone[8];
    #pragma unroll
    for (int e = 0; e < each; ++e) with_x[e] = alone[e] = 0;
    for (i64 row = low + warp; row < high; row += 4 * warps) {
        uint4 part_x[4], part_dy[4];
        #pragma unroll  // all loads are in flight before the first addition
        for (int k = 0; k < 4; ++k) {
            const i64 n = row + k * warps < high ? columns : 0, at = (row + k * warps) * columns;
            part_x[k] = px_ld_part(x + at, column, n);
            part_dy[k] = px_ld_part(dy + at, column, n);
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            float a[8], b[8];
            px_unpack<TYPE>(part_x[k], a);
            px_unpack<TYPE>(part_dy[k], b);
            #pragma unroll
            for (int e = 0; e < each; ++e) {
                with_x[e] += a[e] * b[e];
                alone[e] += b[e];
            }
        }
    }
    #pragma unroll
    for (int e = 0; e < each; ++e) {
        sums[0][warp * strip_columns + lane * each + e] = with_x[e];
        sums[1][warp * strip_columns + lane * each + e] = alone[e];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * strip_columns; i += blockDim.x) {
        const int which = i / strip_columns, place = i % strip_columns;
        float total = 0;
        for (int w = 0; w < warps; ++w) total += sums[which][w * strip_columns + place];
        partial[((blockIdx.y * strips + strip) * 2 + which) * strip_columns + place] = total;
    }
    if (!px_last_block(done + strip, gridDim.y)) return;  // else all partial sums of the strip are visible
    const u32 turn = px_turn(px, blockIdx.x);
    uint4* box = boxes + (i64)(turn & 1) * px.world * columns;
    for (int place = threadIdx.x; place < strip_columns; place += blockDim.x) {
        const i64 at = strip * strip_columns + place;
        if (at >= columns) break;
        float own[2] = {0, 0};
        for (int run = 0; run < gridDim.y; ++run) {
            const volatile float* from = partial + (run * strips + strip) * 2 * strip_columns + place;
            own[0] += from[0];
            own[1] += from[strip_columns];
        }
        const uint2 mine = make_uint2(__float_as_uint(own[0]), __float_as_uint(own[1]));
        for (int away = 1; away < px.world; ++away)
            px_st_ll16(px_at(px, (px.rank + away) % px.world, box) + px.rank * columns + at, mine, turn);
        float total[2] = {0, 0};
        for (int source = 0; source < px.world; ++source) {
            const uint2 got = source == px.rank ? mine : px_ld_ll16(box + source * columns + at, turn);
            total[0] += __uint_as_float(got.x);
            total[1] += __uint_as_float(got.y);
        }
        gamma[at] = from_float<TYPE>(total[0]);
        beta[at] = from_float<TYPE>(total[1]);
    }
    px_reach(px, blockIdx.x, turn);
}
""")
THREADS = 256
BLOCKS = 528
"""Four blocks on each multiprocessor."""
STRIPS = 1000
"""Most strips per launch, because each needs a slot of the signal pad; more strips take several launches."""


def solution(X_hat: torch.Tensor, dY: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """X_hat [M, N], dY [M, N] -> (d_gamma [N], d_beta [N]), summed over all ranks' tokens in float32, on every rank."""
    rows, columns = X_hat.shape
    if not X_hat.is_cuda:
        wide = dY.float()
        both = torch.stack(((wide * X_hat).sum(dim=0), wide.sum(dim=0)))
        dist.all_reduce(both)
        gamma, beta = both.to(X_hat.dtype)
        return gamma, beta
    strip_columns = 32 * 16 // X_hat.element_size()
    strips = -(-columns // strip_columns)
    runs = min(max(BLOCKS // strips, 1), max(rows // 32, 1))
    # Strips differ by dtype, and so do the boxes: a box's words must always belong to the same block and its launch
    # count.
    boxes = symm.empty((2, symm.world, columns, 4), torch.int32, f"boxes {X_hat.dtype}")
    done = symm.empty(strips, torch.int32, "done")  # zero at first, and after every launch
    partial = torch.empty(runs * strips * 2 * strip_columns, dtype=torch.float32, device=X_hat.device)
    gamma, beta = X_hat.new_empty(columns), X_hat.new_empty(columns)
    kernel = kernel_for(X_hat.dtype).column_sums
    x, dy = X_hat.contiguous(), dY.contiguous()
    for first in range(0, strips, STRIPS):
        launch = kernel[(min(strips - first, STRIPS), runs), THREADS]
        launch(symm.px, x, dy, partial, done, boxes, gamma, beta, rows, columns, first, strips)
    return gamma, beta
