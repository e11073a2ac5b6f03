"""House kernel: gated MLP under FSDP and TP; copy engines gather columns of weights beside products of earlier ones.

One pass applies the gate.
"""

import itertools

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.columns import copy_columns, copy_rows, stream_barrier
from sandbox.kit.blocks.columns import kernel_for as column_kernels
from sandbox.kit.blocks.experts import activate
from sandbox.kit.blocks.experts import kernel_for as gate_kernels
from sandbox.kit.blocks.side_stream import beside, join, mark, side_stream
from sandbox.kit.blocks.sums import summed as sum_of_peers
from sandbox.kit.recorded import recorded
from sandbox.kit.symmetric_memory.team import Team

kernel_for = cuda.lazy(r"""
// All threads of a launch call this: copies `from`: [rows][width] to rows `pitch` elements apart, at `to` of every member. to:
// symmetric.
static __device__ void store(const Px& px, const TYPE* from, TYPE* to, i64 rows, i64 width, i64 pitch) {
    const int each = 16 / sizeof(TYPE);
    const u32 words = (width + each - 1) / each;  // 64-bit divisions are several times slower
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * words; i += gridDim.x * blockDim.x) {
        const i64 row = i / words, first = i % words * each;
        const uint4 part = px_ld_part(from + row * width, first, width);
        for (int away = 1; away <= px.world; ++away)  // this rank's own copy last
            px_st_part(px_at(px, (px.rank + away) % px.world, to) + row * pitch, first, width, part);
    }
}
// Stores this rank's shards at all members. w1, w2: [depth / W][width], side by side in both: [depth][2 width]; w3:
// [width][depth / W], in all3: [width][depth]; both and all3 are symmetric.
extern "C" __global__ void __launch_bounds__(512) gather_weights(Px px, const TYPE* w1, const TYPE* w2, const TYPE* w3,
        TYPE* both, TYPE* all3, i64 width, i64 depth) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 part = depth / px.world;
    TYPE* rows = both + px.rank * part * 2 * width;
    store(px, w1, rows, part, width, 2 * width);
    store(px, w2, rows + width, part, width, 2 * width);
    store(px, w3, all3 + px.rank * part, width, part, depth);
    px_turn_barrier(px, blockIdx.x, turn);  // all members' parts have arrived
}
// y = the sum of every member's partial in rank order, rounded once. partial: [n], symmetric; y: [n].
extern "C" __global__ void __launch_bounds__(512) add_members(Px px, TYPE* partial, TYPE* y, i64 n) {
    px_turn_barrier(px, blockIdx.x, px_turn(px, blockIdx.x));  // all members have written their partial
    const int each = 16 / sizeof(TYPE);
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += 2 * step) {
        uint4 part[2][PX_MAX_WORLD];
        #pragma unroll  // all loads are in flight before the first addition
        for (int k = 0; k < 2; ++k)
            #pragma unroll
            for (int peer = 0; peer < PX_MAX_WORLD; ++peer)
                if (peer < px.world) part[k][peer] = px_ld_part(px_at(px, peer, partial), (i + k * step) * each, n);
        #pragma unroll
        for (int k = 0; k < 2; ++k) {
            PxSum<TYPE> total;
            #pragma unroll
            for (int peer = 0; peer < PX_MAX_WORLD; ++peer)
                if (peer < px.world) total.add(part[k][peer]);
            px_st_part(y, (i + k * step) * each, n, total.rounded());
        }
    }
}
""")
BLOCKS, THREADS = 128, 512
LARGE = 16 << 20
"""Bytes of a shard from which weights are gathered beside products."""
CHUNKS = (1, 2, 4, 8, 17)
"""Columns per chunk of the first two weights, in 32nds. Nothing runs beside the first transfer; each later transfer is
shorter than the product before it."""
SLOT = 1000

symm.reserve(6 << 30)  # two of each gathered weight of the largest sizes in float32


def solution(
    x_local: torch.Tensor,
    W1_shard: torch.Tensor,
    W2_shard: torch.Tensor,
    W3_shard: torch.Tensor,
    n_tp: int,
    n_fsdp: int,
) -> torch.Tensor:
    """x_local [B_f, D], W1_shard and W2_shard [D/n_fsdp, F/n_tp], W3_shard [F/n_tp, D/n_fsdp] -> y [B_f, D].

    y = (silu(x W1) · (x W2)) W3 for the rows of this FSDP index, the same on every rank of the TP group. Every product sums
    over all of its depth in float32.
    """
    everyone = symm.connect()
    assert n_tp * n_fsdp == everyone.world, "n_tp * n_fsdp must be the world size"
    f, t = divmod(everyone.rank, n_tp)
    fsdp, tp = everyone.sub(range(t, everyone.world, n_tp)), everyone.sub(range(f * n_tp, (f + 1) * n_tp))
    x, w1, w2, w3 = (tensor.contiguous() for tensor in (x_local, W1_shard, W2_shard, W3_shard))
    if x.is_cuda:  # before the ranks exchange: see `cuda.lazy`
        kernel_for(x.dtype)
        column_kernels(cuda.unit_of(x))
        gate_kernels(x.dtype)
    depth, width, y = x.shape[1], w1.shape[1], x.new_empty((x.shape[0], w3.shape[1] * n_fsdp))
    # Two of each are enough: a rank writes in call e+2 only after all members have begun call e+1.
    both = fsdp.out(2 * depth * width, x.dtype, "W1 and W2", ring=2) if n_fsdp > 1 else x
    all3 = fsdp.out((width, depth), x.dtype, "W3", ring=2) if n_fsdp > 1 else w3
    partial = tp.out(y.shape, x.dtype, "partial", ring=2) if n_tp > 1 else y
    write_output(x, (w1, w2, w3), both, all3, partial, y, fsdp, tp)
    return y


@recorded
def write_output(
    x: torch.Tensor,
    shards: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    both: torch.Tensor,
    all3: torch.Tensor,
    partial: torch.Tensor,
    y: torch.Tensor,
    fsdp: Team,
    tp: Team,
) -> None:
    """Writes y. both, all3: the gathered weights (with one member x and w3); partial: this rank's summand of y (or y)."""
    w1, w2, w3 = shards
    depth, width = x.shape[1], w1.shape[1]
    z = x.new_empty((x.shape[0], width))
    if fsdp.world == 1:
        activate(torch.mm(x, w1), torch.mm(x, w2), z)
        write_sum(z, w3, partial, y, tp)
        return
    if x.is_cuda and w1.nbytes >= LARGE and width % (8 * sum(CHUNKS)) == 0:
        edges = [width * sum(CHUNKS[:number]) // sum(CHUNKS) for number in range(len(CHUNKS) + 1)]
    else:
        edges = [0, width]
    parts = [both[2 * depth * low : 2 * depth * high].view(depth, -1) for low, high in itertools.pairwise(edges)]
    arrived = []

    def gather(number: int) -> None:
        """Queues the copies of a part of W1 and W2, or after the last part those of W3."""
        if number < len(parts):
            copy_inner((w1, w2), parts[number], edges[number], fsdp)
        else:
            copy_columns(w3, all3, fsdp)
        stream_barrier(all3, fsdp, SLOT)
        arrived.append(mark())

    is_piecewise = len(parts) > 1
    if is_piecewise:
        with beside():
            gather(0)
    elif x.is_cuda:
        words = max(-(-w1.nbytes // 16), 1)
        launch = kernel_for(x.dtype).gather_weights[min(-(-words // THREADS), BLOCKS), THREADS]
        launch(fsdp.px, w1, w2, w3, both, all3, width, depth)
    else:
        copy_inner((w1, w2), parts[0], 0, fsdp)
        copy_columns(w3, all3, fsdp)
        fsdp.barrier()
    for number, part in enumerate(parts):
        if is_piecewise:
            with torch.cuda.stream(side_stream()):  # after the copies of the previous part, not after its product
                gather(number + 1)
            join(arrived[number])
        up, factor = torch.mm(x, part).chunk(2, dim=1)
        activate(up, factor, z[:, edges[number] : edges[number + 1]])
    if is_piecewise:
        join(arrived[-1])
    write_sum(z, all3, partial, y, tp)


def copy_inner(shards: tuple[torch.Tensor, ...], part: torch.Tensor, low: int, team: Team) -> None:
    """Copies the columns of two shards from `low` on, side by side, to this member's rows of `part` at all members."""
    rows, columns = shards[0].shape[0], part.shape[1] // 2
    places = team.peers(part[team.rank * rows : (team.rank + 1) * rows])
    for peer in (*team.order()[1:], team.rank):
        for shard, place in zip(shards, places[peer].chunk(2, dim=1), strict=True):
            copy_rows(place, shard[:, low : low + columns])


def write_sum(z: torch.Tensor, weight: torch.Tensor, partial: torch.Tensor, y: torch.Tensor, tp: Team) -> None:
    """Writes the sum of z @ weight over the members of the TP group to y, in float32 and rounded once."""
    torch.mm(z, weight, out=partial)
    if tp.world == 1:
        return
    if not z.is_cuda:
        y.copy_(sum_of_peers(partial, tp))
        return
    words = max(-(-y.nbytes // 16), 1)
    launch = kernel_for(z.dtype).add_members[min(-(-words // THREADS), BLOCKS), THREADS]
    launch(tp.px, partial, y, y.numel())
