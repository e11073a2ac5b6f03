"""The house's Kalman step: two passes over P in two launches, with one number exchanged between them; no host waits for a GPU."""

import functools
from typing import Any

import torch

from sandbox.kit import cuda, symm, tables

SOURCE = r"""
// Block i of this rank has the numbers 6i: addresses of P [n][n], H [n], w [n] and of the new P, then n, and where its rows begin
// among those of all blocks. A warp works on four rows at a time, so that it loads a vector's element once for four of P.
const int SLOT = 1000, ROWS = 4, AHEAD = 4, PART = 2;
struct Rows { const double *P, *H; double* next; i64 n, row, flat; };
static __device__ Rows rows_of(const PxNumbers& few, const i64* many, i64 group) {
    int i = 0;
    for (;; ++i) {
        const i64 groups = (px_number(few, many, 6 * i + 4) + ROWS - 1) / ROWS;
        if (group < groups) break;
        group -= groups;
    }
    const double* P = (const double*)px_number(few, many, 6 * i);
    const double* H = (const double*)px_number(few, many, 6 * i + 1);
    double* next = (double*)px_number(few, many, 6 * i + 3);
    return {P, H, next, px_number(few, many, 6 * i + 4), group * ROWS, px_number(few, many, 6 * i + 5) + group * ROWS};
}
static __device__ double warp_sum(double value) {
    #pragma unroll
    for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(0xffffffffu, value, away);
    return value;
}
// gain: P H of all blocks; partial: [blocks of the launch], boxes: px_swap's, done: a counter, left at 0. out: 1 / t and the new
// lambda. Sums run in the same order in every call, and on all ranks.
extern "C" __global__ void __launch_bounds__(512, 2) find_gains(Px px, PxNumbers few, const i64* many, double* gain,
        double* partial, u32* done, uint4* boxes, double* out, i64 groups, int blocks, double lambda, double nue) {
    __shared__ double warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, each = blockDim.x / 32;
    double own = 0;  // of H^T P H
    for (i64 group = (i64)blockIdx.x * each + warp; group < groups; group += (i64)gridDim.x * each) {
        const Rows rows = rows_of(few, many, group);
        double sum[ROWS] = {};
        for (i64 first = lane; first < rows.n; first += 32 * AHEAD) {
            double h[AHEAD], p[ROWS][AHEAD];
            #pragma unroll  // all loads are in flight before the first product
            for (int k = 0; k < AHEAD; ++k) {
                const i64 column = first + 32 * k;
                h[k] = column < rows.n ? rows.H[column] : 0;
                #pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    p[r][k] = column < rows.n ? rows.P[min(rows.row + r, rows.n - 1) * rows.n + column] : 0;
            }
            #pragma unroll
            for (int k = 0; k < AHEAD; ++k)
                #pragma unroll
                for (int r = 0; r < ROWS; ++r) sum[r] += p[r][k] * h[k];
        }
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const double total = warp_sum(sum[r]);
            if (rows.row + r >= rows.n) continue;
            own += total * rows.H[rows.row + r];
            if (lane == r) gain[rows.flat + r] = total;
        }
    }
    if (lane == 0) warps[warp] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < each; ++w) own += warps[w];
        partial[blockIdx.x] = own;
    }
    if (!px_last_block(done, gridDim.x)) return;
    const u32 turn = px_turn(px, SLOT);
    if (warp == 0) {
        double sum = 0;
        for (int block = lane; block < gridDim.x; block += 32) sum += ((const volatile double*)partial)[block];
        const double mine = warp_sum(sum) + blocks * lambda;
        const uint2 got = px_swap(px, boxes, *(const uint2*)&mine, turn);
        double total = 0;
        for (int rank = 0; rank < px.world; ++rank) {
            const uint2 theirs = make_uint2(__shfl_sync(0xffffffffu, got.x, rank), __shfl_sync(0xffffffffu, got.y, rank));
            total += *(const double*)&theirs;
        }
        if (lane == 0) {
            out[0] = 1.0 / total;
            out[1] = nue * lambda + (1.0 - nue);
        }
    }
    px_reach(px, SLOT, turn);
}
// all: the new weights of all ranks, symmetric; this rank's `count` begin at `first`.
extern "C" __global__ void __launch_bounds__(512, 2) update(Px px, PxNumbers few, const i64* many, const double* gain,
        const double* out, const double* error, double* all, i64 first, i64 count, i64 groups, double inverse_lambda) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % 32, each = blockDim.x / 32;
    const double inverse = out[0], step = inverse * *error;
    for (i64 j = (i64)blockIdx.x * blockDim.x + threadIdx.x; j < count; j += (i64)gridDim.x * blockDim.x) {
        int i = 0;
        while (j >= px_number(few, many, 6 * i + 5) + px_number(few, many, 6 * i + 4)) ++i;
        const double* weight = (const double*)px_number(few, many, 6 * i + 2);
        const double value = weight[j - px_number(few, many, 6 * i + 5)] + step * gain[j];
        for (int away = 0; away < px.world; ++away) px_at(px, (px.rank + away) % px.world, all)[first + j] = value;
    }
    // From the end to the beginning: what the first pass has read last is in the cache.
    for (i64 item = (i64)blockIdx.x * each + threadIdx.x / 32; item < groups; item += (i64)gridDim.x * each) {
        const Rows rows = rows_of(few, many, groups - 1 - item);
        const double* column_gain = gain + (rows.flat - rows.row);
        double factor[ROWS];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) factor[r] = inverse * column_gain[min(rows.row + r, rows.n - 1)];
        for (i64 begin = lane; begin < rows.n; begin += 32 * PART) {
            double k[PART], p[ROWS][PART];
            #pragma unroll  // all loads are in flight before the first store
            for (int a = 0; a < PART; ++a) {
                const i64 column = begin + 32 * a;
                k[a] = column < rows.n ? column_gain[column] : 0;
                #pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    p[r][a] = column < rows.n ? rows.P[min(rows.row + r, rows.n - 1) * rows.n + column] : 0;
            }
            #pragma unroll
            for (int r = 0; r < ROWS; ++r)
                #pragma unroll
                for (int a = 0; a < PART; ++a)
                    if (rows.row + r < rows.n && begin + 32 * a < rows.n)
                        rows.next[(rows.row + r) * rows.n + begin + 32 * a] = (p[r][a] - factor[r] * k[a]) * inverse_lambda;
        }
    }
    px_meet(px, blockIdx.x, turn);  // everybody's weights have arrived
}
"""
BLOCKS, THREADS = 264, 512
"""Two blocks on each multiprocessor; the same block of every rank meets."""
ROWS = 4
AT_ONCE = 31
"""Sizes that the processes exchange in one message, beside their number."""


@functools.cache
def kernels() -> Any:
    """Compiled when they are first asked for, so inside a first call."""
    return cuda.compile(SOURCE)


@torch.no_grad()
def solution(
    H: list[torch.Tensor],
    error: torch.Tensor,
    weights: list[torch.Tensor],
    P: list[torch.Tensor],
    kalman_lambda: float,
    kalman_nue: float = 0.9987,
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """H[i], weights[i] [n_i, 1], P[i] [n_i, n_i] symmetric, error []: this rank's blocks, float64.

    Returns (the new weights of all ranks, by rank and block; the caller's list P with new blocks; the new
    lambda []). The lists `weights` and `P` are rebound to new tensors, their old tensors keep their values.
    Blocks may differ in number and size between ranks.
    """
    team = symm.connect()
    sizes = sizes_of_all([weight.numel() for weight in weights], team)
    counts = [sum(blocks) for blocks in sizes]
    first, total = sum(counts[: team.rank]), sum(counts)
    # Two results: a rank that stores for call e+2 has met everybody in call e+1, behind whatever has read the result of call e.
    room = team.room(total, torch.float64, "weights")
    flat = torch.split(room[:total].view(-1, 1), [size for blocks in sizes for size in blocks])
    before = sum(map(len, sizes[: team.rank]))
    own = flat[before : before + len(weights)]
    step = on_gpus if room.is_cuda else on_cpu
    new_lambda = step(H, error, weights, P, (kalman_lambda, kalman_nue), room, first, max(counts), team)
    weights[:] = own
    return list(flat), P, new_lambda


def sizes_of_all(mine: list[int], team: Any) -> list[list[int]]:
    """The sizes of every rank's blocks. The processes exchange them: their number, and a few at a time."""
    sizes: list[list[int]] = [[] for _ in range(team.world)]
    begin, longest = 0, 1
    while begin < longest:
        some = mine[begin : begin + AT_ONCE]
        heard = team.gather_numbers(len(mine), *some, *[0] * (AT_ONCE - len(some)))
        for known, numbers in zip(sizes, heard, strict=True):
            known.extend(numbers[1 : 1 + max(min(numbers[0] - begin, AT_ONCE), 0)])
        begin, longest = begin + AT_ONCE, max(numbers[0] for numbers in heard)
    return sizes


def on_gpus(
    H: list[torch.Tensor],
    error: torch.Tensor,
    weights: list[torch.Tensor],
    P: list[torch.Tensor],
    factors: tuple[float, float],
    room: torch.Tensor,
    first: int,
    most: int,
    team: Any,
) -> torch.Tensor:
    """Renews the list P, stores the new weights at all ranks from place `first` on, and returns the new lambda.

    most: rows of the rank with the most.
    """
    device, rows, groups = room.device, 0, 0
    blocks = min(max(-(-most // (ROWS * (THREADS // 32))), 1), BLOCKS)  # the same on all ranks
    held, listed = [], []
    for i, jacobian in enumerate(H):
        n = jacobian.numel()
        parts = P[i].contiguous(), jacobian.contiguous(), weights[i].contiguous()
        held.append(parts)
        P[i] = torch.empty((n, n), dtype=torch.float64, device=device)
        listed += [*(part.data_ptr() for part in parts), P[i].data_ptr(), n, rows]
        rows, groups = rows + n, groups + -(-n // ROWS)
    few, many = tables.numbers(listed, device)
    boxes = team.empty((2, team.world, 4), torch.int32, "boxes")
    done = team.empty(1, torch.int32, "done")  # zero at first, and after every launch
    out = torch.empty(2 + blocks + rows, dtype=torch.float64, device=device)
    gain, partial = out[2 + blocks :], out[2:]
    numbers = groups, len(H), *factors
    find_gains = kernels().find_gains[blocks, THREADS]
    find_gains(team.px, few, many, gain, partial, done.data_ptr(), boxes.data_ptr(), out, *numbers)
    update = kernels().update[blocks, THREADS]
    update(team.px, few, many, gain, out, error.data_ptr(), room, first, rows, groups, 1 / factors[0])
    return out[1]


def on_cpu(
    H: list[torch.Tensor],
    error: torch.Tensor,
    weights: list[torch.Tensor],
    P: list[torch.Tensor],
    factors: tuple[float, float],
    room: torch.Tensor,
    first: int,
    most: int,
    team: Any,
) -> torch.Tensor:
    """The same for CPU ranks."""
    kalman_lambda, nue = factors
    gains = [(block @ jacobian).flatten() for block, jacobian in zip(P, H, strict=True)]
    own = sum(kalman_lambda + jacobian.flatten().dot(gain) for jacobian, gain in zip(H, gains, strict=True))
    shared = team.stage(torch.as_tensor(own, dtype=torch.float64).view(1))
    team.barrier()
    inverse = 1 / sum(peer.item() for peer in team.peers(shared))
    for i, gain in enumerate(gains):
        updated = weights[i].flatten() + inverse * error * gain
        for peer in team.peers(room):
            peer[first : first + gain.numel()] = updated
        first += gain.numel()
        P[i] = torch.addr(P[i], gain, gain, beta=1 / kalman_lambda, alpha=-inverse / kalman_lambda)
    team.barrier()
    return torch.tensor(nue * kalman_lambda + (1 - nue), dtype=torch.float64)
