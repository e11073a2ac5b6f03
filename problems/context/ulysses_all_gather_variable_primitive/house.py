"""House kernel: all-gather of unequal shards; ranks exchange their shapes, then store every word in all results."""

import math

import torch
import torch.distributed as dist

from sandbox.kit import cuda, symm

kernels = cuda.lazy(r"""
// Stores this rank's shard in the results of all ranks. x: [outer][n] elements of two bytes; y: [outer][pitch], symmetric;
// this rank's n elements of a row begin at `first`.
extern "C" __global__ void __launch_bounds__(512) gather_rows(Px px, const u16* x, u16* y, i64 outer, i64 n, i64 pitch,
        i64 first) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 words = (n + 7) / 8, all = outer * words, step = (i64)gridDim.x * blockDim.x;
    for (i64 begin = (i64)blockIdx.x * blockDim.x + threadIdx.x; begin < all; begin += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) {
            const i64 i = begin + k * step;
            if (i < all) part[k] = px_ld_part(x + i / words * n, i % words * 8, n);
        }
        for (int away = 0; away < px.world; ++away) {
            u16* there = px_at(px, (px.rank + away) % px.world, y) + first;
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                const i64 i = begin + k * step;
                if (i < all) px_st_part(there + i / words * pitch, i % words * 8, n, part[k]);
            }
        }
    }
    px_turn_barrier(px, blockIdx.x, turn);  // the shards of all ranks have arrived
}
""")
BLOCKS, THREADS = 128, 512

symm.reserve(6 << 30)  # two results of the largest sizes


def solution(x: torch.Tensor, gather_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x with any number of dimensions; shapes on the ranks of the group differ along gather_dim at most.

    Returns the shards joined along gather_dim in rank order, contiguous. A group of one rank gets x itself if it is
    contiguous. On GPUs the element size must be a multiple of two bytes.

    Raises:
        ValueError: shapes differ in another dimension.
    """
    team = symm.team(group)
    shard = x.contiguous()
    if team.world == 1:
        return shard
    gather_dim %= shard.dim()
    shapes = [list(shape) for shape in team.gather_numbers(*shard.shape)]
    lengths = [shape.pop(gather_dim) for shape in shapes]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"shards differ in more than dimension {gather_dim}: {shapes}")
    outer, inner = math.prod(shard.shape[:gather_dim]), math.prod(shard.shape[gather_dim + 1 :])
    before, total = sum(lengths[: team.rank]), sum(lengths)
    whole = (*shard.shape[:gather_dim], total, *shard.shape[gather_dim + 1 :])
    # Two results are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the result of
    # call e before that barrier.
    room = team.room(outer * total * inner, shard.dtype, "gathered", ring=None)
    result = room[: outer * total * inner].view(whole)
    if not x.is_cuda:
        for peer in team.peers(room):
            place = peer[: result.numel()].view(whole).narrow(gather_dim, before, shard.shape[gather_dim])
            place.copy_(shard)
        team.barrier()
        return result
    unit = shard.element_size() // 2 * inner  # halves of one position
    most = outer * max(lengths) * unit
    blocks = min(max(-(-most // (8 * THREADS)), 1), BLOCKS)  # the same on all ranks
    launch = kernels().gather_rows[blocks, THREADS]
    launch(team.px, shard, room, outer, shard.shape[gather_dim] * unit, total * unit, before * unit)
    return result
