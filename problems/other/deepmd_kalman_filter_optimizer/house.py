"""House kernel: Kalman step; two passes over half of P, one number exchanged between them; no host waits for a GPU."""

from typing import Any

import torch

from sandbox.kit import cuda, symm, tables

kernels = cuda.lazy(r"""
// The list (few, many) has 7 numbers for each block i of P, from 7i on: the addresses of P [n][n], H [n], w [n] and the new P;
// n; where its rows begin among those of all blocks of P; where its sums begin in `parts`. P is symmetric, so only tiles on and
// below its diagonal are read. tile_of finds tile `item` of all blocks of P.
const int SLOT = 1000, SIDE = 64, EIGHT = 8;
struct Tile { const double *P, *H; double* next; i64 n, flat, parts, down, across; };  // down, across: its first row and column
static __device__ Tile tile_of(const PxNumbers& few, const i64* many, i64 item) {
    int i = 0;
    i64 n;
    for (;; ++i) {
        n = px_number(few, many, 7 * i + 4);
        const i64 side = (n + SIDE - 1) / SIDE, tiles = side * (side + 1) / 2;
        if (item < tiles) break;
        item -= tiles;
    }
    i64 down = (i64)((sqrt(8.0 * item + 1) - 1) / 2);
    while (down * (down + 1) / 2 > item) --down;  // correct rounding errors of the root
    while ((down + 1) * (down + 2) / 2 <= item) ++down;
    const i64 across = item - down * (down + 1) / 2;
    return {(const double*)px_number(few, many, 7 * i), (const double*)px_number(few, many, 7 * i + 1),
            (double*)px_number(few, many, 7 * i + 3), n, px_number(few, many, 7 * i + 5), px_number(few, many, 7 * i + 6),
            down * SIDE, across * SIDE};
}
// Multiplies tiles of P with H. parts: for each block of P [tiles per side][n], what each tile adds to P H by rows and columns.
extern "C" __global__ void __launch_bounds__(512, 2) multiply_tiles(PxNumbers few, const i64* many, double* parts, i64 tiles) {
    __shared__ double tile[SIDE][SIDE + 1], row_sums[EIGHT][SIDE], column_sums[EIGHT][SIDE];
    const int lane = threadIdx.x % SIDE, group = threadIdx.x / SIDE, groups = blockDim.x / SIDE;
    for (i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
        const Tile t = tile_of(few, many, item);
        double sum = 0;  // of column `lane`
        for (int first = group; first < SIDE; first += EIGHT * groups) {
            double p[EIGHT];
            #pragma unroll  // all loads are in flight before the first product
            for (int k = 0; k < EIGHT; ++k) {
                const i64 row = t.down + first + k * groups, column = t.across + lane;
                p[k] = row < t.n && column < t.n ? t.P[row * t.n + column] : 0;
            }
            #pragma unroll
            for (int k = 0; k < EIGHT; ++k) {
                const int row = first + k * groups;
                tile[row][lane] = p[k];
                if (t.down + row < t.n) sum += p[k] * t.H[t.down + row];
            }
        }
        column_sums[group][lane] = sum;
        __syncthreads();
        sum = 0;  // of row `lane`
        for (int column = group; column < SIDE; column += groups)
            if (t.across + column < t.n) sum += tile[lane][column] * t.H[t.across + column];
        row_sums[group][lane] = sum;
        __syncthreads();
        for (int j = threadIdx.x; j < 2 * SIDE; j += blockDim.x) {
            const bool of_rows = j < SIDE;
            const i64 place = (of_rows ? t.down : t.across) + j % SIDE, other = of_rows ? t.across : t.down;
            if (place >= t.n || (!of_rows && t.down == t.across)) continue;
            sum = 0;
            for (int g = 0; g < groups; ++g) sum += (of_rows ? row_sums : column_sums)[g][j % SIDE];
            parts[t.parts + other / SIDE * t.n + place] = sum;
        }
        __syncthreads();
    }
}
static __device__ double warp_sum(double value) {
    #pragma unroll
    for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(0xffffffffu, value, away);
    return value;
}
// Adds up P H of all blocks of P in `gain` [rows]. out: {1 / t, new lambda}, where t is the sum of H^T P H + lambda over all
// blocks of P of all ranks. partial: [thread blocks]; boxes: as in px_swap; done: the counter of px_last_block. The order of
// additions is the same in every call and on all ranks.
extern "C" __global__ void __launch_bounds__(128) sum_gains(Px px, PxNumbers few, const i64* many, const double* parts,
        double* gain, double* partial, u32* done, uint4* boxes, double* out, i64 rows, int blocks, double lambda, double nue) {
    __shared__ double warps[4];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double own = 0;  // this thread's part of H^T P H
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (i64)gridDim.x * blockDim.x) {
        int i = 0;
        while (row >= px_number(few, many, 7 * i + 5) + px_number(few, many, 7 * i + 4)) ++i;
        const i64 n = px_number(few, many, 7 * i + 4), place = row - px_number(few, many, 7 * i + 5);
        const double* from = parts + px_number(few, many, 7 * i + 6) + place;
        double sum = 0;
        #pragma unroll 8
        for (i64 side = 0; side < (n + SIDE - 1) / SIDE; ++side) sum += from[side * n];
        gain[row] = sum;
        own += sum * ((const double*)px_number(few, many, 7 * i + 1))[place];
    }
    own = warp_sum(own);
    if (lane == 0) warps[warp] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) own += warps[w];
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
// Stores the new P, and the new weights at all ranks. all: the weights of all ranks, symmetric; this rank's `count` begin at
// `first`. A tile of P is also stored transposed, above the diagonal.
extern "C" __global__ void __launch_bounds__(512, 2) update(Px px, PxNumbers few, const i64* many, const double* gain,
        const double* out, const double* error, double* all, i64 first, i64 count, i64 tiles, double inverse_lambda) {
    __shared__ double tile[SIDE][SIDE + 1];
    const u32 turn = px_turn(px, blockIdx.x);
    const int lane = threadIdx.x % SIDE, group = threadIdx.x / SIDE, groups = blockDim.x / SIDE;
    const double inverse = out[0], step = inverse * *error;
    for (i64 j = (i64)blockIdx.x * blockDim.x + threadIdx.x; j < count; j += (i64)gridDim.x * blockDim.x) {
        int i = 0;
        while (j >= px_number(few, many, 7 * i + 5) + px_number(few, many, 7 * i + 4)) ++i;
        const double* weight = (const double*)px_number(few, many, 7 * i + 2);
        const double value = weight[j - px_number(few, many, 7 * i + 5)] + step * gain[j];
        for (int away = 0; away < px.world; ++away) px_at(px, (px.rank + away) % px.world, all)[first + j] = value;
    }
    // In reverse order, because the tiles that multiply_tiles read last are still in the cache.
    for (i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
        const Tile t = tile_of(few, many, tiles - 1 - item);
        const double* k = gain + t.flat;
        const i64 column = t.across + lane;
        const double factor = column < t.n ? inverse * k[column] : 0;
        for (int begin = group; begin < SIDE; begin += EIGHT * groups) {
            double p[EIGHT];
            #pragma unroll  // all loads are in flight before the first store
            for (int e = 0; e < EIGHT; ++e) {
                const i64 row = t.down + begin + e * groups;
                p[e] = row < t.n && column < t.n ? t.P[row * t.n + column] : 0;
            }
            #pragma unroll
            for (int e = 0; e < EIGHT; ++e) {
                const i64 row = t.down + begin + e * groups;
                if (row >= t.n || column >= t.n) continue;
                const double value = (p[e] - factor * k[row]) * inverse_lambda;
                t.next[row * t.n + column] = value;
                tile[begin + e * groups][lane] = value;
            }
        }
        __syncthreads();
        if (t.down != t.across && t.down + lane < t.n)
            for (int row = group; row < SIDE && t.across + row < t.n; row += groups)
                t.next[(t.across + row) * t.n + t.down + lane] = tile[lane][row];
        __syncthreads();
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the weights of all ranks have arrived
}
""")
BLOCKS, THREADS = 264, 512
"""Two blocks on each multiprocessor; a block has barriers with the same block of every rank."""
SIDE, FEWER = 64, 128
"""Rows and columns of a tile; threads of a block of `sum_gains`."""
AT_ONCE = 31
"""Most sizes that the processes exchange in one message, beside their number."""


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
    if error.is_cuda:
        kernels()  # before the ranks exchange: see `cuda.lazy`
    sizes = sizes_of_all([weight.numel() for weight in weights], team)
    counts = [sum(blocks) for blocks in sizes]
    first, total = sum(counts[: team.rank]), sum(counts)
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    room = team.room(total, torch.float64, "weights")
    flat = torch.split(room[:total].view(-1, 1), [size for blocks in sizes for size in blocks])
    before = sum(map(len, sizes[: team.rank]))
    own = flat[before : before + len(weights)]
    step = on_gpus if room.is_cuda else on_cpu
    new_lambda = step(H, error, weights, P, (kalman_lambda, kalman_nue), room, first, max(counts), team)
    weights[:] = own
    return list(flat), P, new_lambda


def sizes_of_all(mine: list[int], team: Any) -> list[list[int]]:
    """Returns the sizes of every rank's blocks; processes exchange their number, and AT_ONCE sizes at a time."""
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
    """Replaces the blocks in the list P, stores new weights at all ranks from place `first` on, returns the new lambda.

    most: the largest number of rows of any rank.
    """
    device, rows, tiles, sums = room.device, 0, 0, 0
    held, listed = [], []
    for i, jacobian in enumerate(H):
        n = jacobian.numel()
        given = P[i].contiguous(), jacobian.contiguous(), weights[i].contiguous()
        held.append(given)
        P[i] = torch.empty((n, n), dtype=torch.float64, device=device)
        listed += [*(tensor.data_ptr() for tensor in given), P[i].data_ptr(), n, rows, sums]
        side = -(-n // SIDE)
        rows, tiles, sums = rows + n, tiles + side * (side + 1) // 2, sums + side * n
    few, many = tables.numbers(listed, device)
    summing = min(max(-(-rows // FEWER), 1), BLOCKS)
    boxes = team.empty((2, team.world, 4), torch.int32, "boxes")
    done = team.empty(1, torch.int32, "done")  # zero at first, and after every launch
    out = torch.empty(2 + summing + rows + sums, dtype=torch.float64, device=device)
    partial, gain, parts = out[2:], out[2 + summing :], out[2 + summing + rows :]
    at = few, many
    if tiles:
        kernels().multiply_tiles[min(tiles, BLOCKS), THREADS](*at, parts, tiles)
    numbers = rows, len(H), *factors
    sum_gains = kernels().sum_gains[summing, FEWER]
    sum_gains(team.px, *at, parts, gain, partial, done.data_ptr(), boxes.data_ptr(), out, *numbers)
    blocks = min(max(-(-most // 16), 1), BLOCKS)  # the same on all ranks
    update = kernels().update[blocks, THREADS]
    update(team.px, *at, gain, out, error.data_ptr(), room, first, rows, tiles, 1 / factors[0])
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
    """Does on CPU ranks what `on_gpus` does on GPUs."""
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
