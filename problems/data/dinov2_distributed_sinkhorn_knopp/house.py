"""House kernel: Sinkhorn-Knopp without rewriting the matrix; each pass computes row sums and the next column sums."""

import math

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernels = cuda.lazy(r"""
// E = exp(x / temperature). The result is E[b][k] * weight[k] / (sum over k of E[b][k] * weight[k]). weight[k] is 1 / (sum over
// all samples b of E[b][k] / row_sum[b]), where row_sum is the sum over k with the previous weights, and 1 in the first pass.
// Total mass, number of samples and number of prototypes cancel.
// A team of `parts` blocks shares a row, blockDim.x * 16 columns each, and works on ROWS rows at a time. A block keeps its part
// of the rows in registers until the team's other blocks have sent their parts of the row sums. `words` is [rows][parts] words of
// a value and a flag, `turn`, in this GPU's memory. Only the blocks of one team wait for one another. Odd turns process the rows
// backwards, because the last rows are still cached.
const int ROWS = 2, WORDS = 4;  // words of 16 bytes a thread
enum Pass { FIRST, MIDDLE, LAST };  // column sums; row sums and column sums; row sums and the result
// Loads this thread's words of ROWS rows, from element `first` of a row on; zeros beyond the end.
static __device__ void load(uint4 to[ROWS][WORDS], const float* x, i64 row, i64 rows, i64 columns, i64 first) {
    #pragma unroll
    for (int r = 0; r < ROWS; ++r)
        #pragma unroll
        for (int w = 0; w < WORDS; ++w)
            to[r][w] = px_ld_part(x + (row + r) * columns, first + w * 4 * blockDim.x, row + r < rows ? columns : 0);
}
// The whole block calls this: sets inverse[r] to 1 / the sum of row `row` + r, or to 0 beyond the last row. own[r]: this thread's
// part of the sum. Warp r exchanges the blocks' parts of row r.
static __device__ void invert_sums(float inverse[ROWS], const float own[ROWS], u64* words, i64 row, i64 rows, int part, int parts,
        u32 turn) {
    __shared__ float warps[ROWS][32], shared[ROWS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float sum = px_warp_sum(own[r]);
        if (lane == 0) warps[r][warp] = sum;
    }
    __syncthreads();
    if (warp < ROWS) {
        float sum = 0;
        if (row + warp < rows) {
            u64* at = words + (row + warp) * parts;
            const float block = px_warp_sum(lane < blockDim.x / 32 ? warps[warp][lane] : 0);
            if (lane == 0) px_st_ll(at + part, __float_as_uint(block), turn);
            for (int other = lane; other < parts; other += 32) sum += __uint_as_float(px_ld_ll(at + other, turn));
        }
        sum = px_warp_sum(sum);
        if (lane == 0) shared[warp] = row + warp < rows ? 1 / sum : 0;
    }
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) inverse[r] = shared[r];
}
// One pass over x: [rows][columns]; exp2(x * scale) is E. weights: [columns]; partial: [teams][columns], the teams' column sums
// (unless LAST); y: [rows][columns], the result (LAST).
template <Pass PASS> static __device__ void pass(const float* x, const float* weights, float* partial, float* y, u64* words,
        i64 rows, i64 columns, float scale, int parts, u32 turn) {
    const int part = blockIdx.x % parts, team = blockIdx.x / parts, teams = gridDim.x / parts;
    const i64 steps = (rows + teams * ROWS - 1) / (teams * ROWS), first = ((i64)part * blockDim.x * WORDS + threadIdx.x) * 4;
    float weight[WORDS][4], total[WORDS][4];
    #pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        if (PASS != FIRST) px_unpack<float>(px_ld_part(weights, first + w * 4 * blockDim.x, columns), weight[w]);
        #pragma unroll
        for (int e = 0; e < 4; ++e) total[w][e] = 0;
    }
    uint4 next[ROWS][WORDS];
    for (i64 step = 0; step <= steps; ++step) {
        const i64 before = turn % 2 ? steps - step : step - 1, after = turn % 2 ? before - 1 : step;
        const i64 row = (before * teams + team) * ROWS;
        float value[ROWS][WORDS][4], own[ROWS], inverse[ROWS];
        if (step > 0) {
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                own[r] = 0;
                inverse[r] = row + r < rows;
                #pragma unroll
                for (int w = 0; w < WORDS; ++w) {
                    px_unpack<float>(next[r][w], value[r][w]);
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        value[r][w][e] = exp2f(value[r][w][e] * scale);
                        if (PASS != FIRST) own[r] += value[r][w][e] * weight[w][e];
                    }
                }
            }
        }
        if (step < steps) load(next, x, (after * teams + team) * ROWS, rows, columns, first);  // arrives during the wait
        if (step == 0) continue;
        if (PASS != FIRST) invert_sums(inverse, own, words, row, rows, part, parts, turn);
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            #pragma unroll
            for (int w = 0; w < WORDS; ++w) {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (PASS == LAST) value[r][w][e] *= weight[w][e] * inverse[r];
                    else total[w][e] += value[r][w][e] * inverse[r];
                }
                if (PASS == LAST)
                    px_st_part(y + (row + r) * columns, first + w * 4 * blockDim.x, row + r < rows ? columns : 0,
                        px_pack<float>(value[r][w]));
            }
    }
    if (PASS == LAST) return;
    #pragma unroll
    for (int w = 0; w < WORDS; ++w)
        px_st_part(partial + team * columns, first + w * 4 * blockDim.x, columns, px_pack<float>(total[w]));
}
// The first, the middle and the last passes; `turn` is the number of the pass, from 0 on.
extern "C" __global__ void __launch_bounds__(256, 2) sum_columns(
        const float* x, float* partial, i64 rows, i64 columns, float scale, int parts) {
    pass<FIRST>(x, 0, partial, 0, 0, rows, columns, scale, parts, 0);
}
extern "C" __global__ void __launch_bounds__(256, 2) balance(const float* x, const float* weights, float* partial, u64* words,
        i64 rows, i64 columns, float scale, int parts, u32 turn) {
    pass<MIDDLE>(x, weights, partial, 0, words, rows, columns, scale, parts, turn);
}
extern "C" __global__ void __launch_bounds__(256, 2) assign(const float* x, const float* weights, float* y, u64* words,
        i64 rows, i64 columns, float scale, int parts, u32 turn) {
    pass<LAST>(x, weights, 0, y, words, rows, columns, scale, parts, turn);
}
// Sets weights[column] to 1 / the sum of `partial`: [teams][columns] over all teams and ranks, always in the same order. boxes:
// [2 (turns)][W (senders)][columns] words of 8 bytes with flags, symmetric. Two turns are enough: a rank that sends launch t+2
// has received all words of launch t+1, so all ranks have read those of launch t.
extern "C" __global__ void __launch_bounds__(256) join(
        Px px, const float* partial, u64* boxes, float* weights, i64 columns, int teams) {
    const u32 turn = px_turn(px, blockIdx.x);
    u64* box = boxes + (i64)(turn & 1) * px.world * columns;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, stride = (i64)gridDim.x * blockDim.x;
    for (i64 column = first; column < columns; column += stride) {
        float sum = 0;
        #pragma unroll 16
        for (int team = 0; team < teams; ++team) sum += partial[team * columns + column];
        for (int peer = 0; peer < px.world; ++peer)
            px_st_ll(px_at(px, peer, box) + px.rank * columns + column, __float_as_uint(sum), turn);
    }
    for (i64 column = first; column < columns; column += stride) {
        float sum = 0;
        for (int source = 0; source < px.world; ++source)
            sum += __uint_as_float(px_ld_ll(box + source * columns + column, turn));
        weights[column] = 1 / sum;
    }
    px_reach(px, blockIdx.x, turn);
}
""")
BLOCKS, THREADS = 256, 256
"""At most two blocks on each multiprocessor, so that all blocks of a team are resident at the same time."""


def solution(
    teacher_output: torch.Tensor,
    teacher_temp: float,
    n_masked_patches_tensor: torch.Tensor,
    n_iterations: int = 3,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """teacher_output [b, K] -> [b, K] float32, this rank's samples; b may differ between ranks.

    exp(teacher_output / teacher_temp) is normalised n_iterations times per prototype over all ranks' samples, then per sample.
    Each sample's result sums to one. n_masked_patches_tensor is used only if n_iterations is below 1.
    """
    scores = teacher_output.float().contiguous()
    (rows, columns), parts = scores.shape, -(-scores.shape[1] // (16 * THREADS))
    if not scores.is_cuda or n_iterations < 1 or not 0 < parts <= BLOCKS:
        return by_library(scores, teacher_temp, n_masked_patches_tensor, n_iterations, group)
    made = kernels()  # before the ranks exchange: see `cuda.lazy`
    team, teams = symm.team(group), BLOCKS // parts
    boxes = team.empty((2, team.world, columns), torch.int64, "column sums")
    partial, weights = scores.new_empty(teams, columns), scores.new_empty(columns)
    words = torch.zeros(max(rows * parts, 1), dtype=torch.int64, device=scores.device)
    result = torch.empty_like(scores)
    given = rows, columns, math.log2(math.e) / teacher_temp, parts
    grid = parts * teams
    made.sum_columns[grid, THREADS](scores, partial, *given)
    for turn in range(1, n_iterations + 1):
        blocks = min(-(-columns // THREADS), BLOCKS)  # a column's box always belongs to the same block
        made.join[blocks, THREADS](team.px, partial, boxes, weights, columns, teams)
        if turn < n_iterations:
            made.balance[grid, THREADS](scores, weights, partial, words, *given, turn)
    made.assign[grid, THREADS](scores, weights, result, words, *given, n_iterations)
    return result


def by_library(
    scores: torch.Tensor, temperature: float, count: torch.Tensor, iterations: int, group: dist.ProcessGroup | None
) -> torch.Tensor:
    """Computes `solution` by matrix-vector products and one all-reduce per iteration."""
    assigned = (scores / temperature).exp_()
    if iterations < 1:
        both = torch.stack((assigned.sum(), count[0].to(assigned.dtype)))
        dist.all_reduce(both, group=group)
        return assigned.mul_(both[1] / both[0])
    column = assigned.sum(dim=0)
    for iteration in range(iterations):
        dist.all_reduce(column, group=group)
        weights = column.reciprocal_()
        inverse = torch.mv(assigned, weights).reciprocal_()
        if iteration < iterations - 1:
            column = torch.mv(assigned.t(), inverse)
    return assigned.mul_(weights).mul_(inverse[:, None])
