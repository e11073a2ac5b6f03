"""Changes the split dimension of tensors in one launch: Ulysses' exchanges.

    from sandbox.kit import symm
    from sandbox.kit.blocks.reshard import reshard

    heads = reshard(x, scatter_dim=2, gather_dim=1, team=symm.team(group))   # [B, S, A, D] -> [B, W·S, A/W, D]

Every rank reads its tensor once and stores each 16-byte word at its final place in its owner's memory, without packing. CPU ranks
copy their parts from the peers' memory.
"""

import functools
import math
from typing import Any

import torch

from sandbox.kit import cuda
from sandbox.kit.symmetric_memory.team import Team

SOURCE = r"""
// x: [outer] blocks of `rows_in` rows of `width_in` elements; y: the result, symmetric. A rank's part for peer d is, of every
// block,
//   across = 0: rows d * rows to (d + 1) * rows, width elements each       -> y[outer][rows][W (senders)][width]
//   across = 1: in each of the rows, elements d * width to (d + 1) * width -> y[outer][W (senders)][rows][width]
// What lies beyond rows_in or width_in is zero. A thread takes one word of every peer's part, so that all peers are written to
// all the time.
template <class T> static __device__ void reshard(
        const Px& px, const T* x, T* y, i64 outer, i64 rows_in, i64 width_in, i64 rows, i64 width, int across) {
    const u32 turn = px_turn(px, blockIdx.x);
    const int each = 16 / sizeof(T);
    const i64 words = (width + each - 1) / each, all = outer * rows * words;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (i64)gridDim.x * blockDim.x) {
        i64 line, word, block, row;
        if (all < 0xffffffff) {  // divisions of 32 bits are several times as fast
            line = (u32)i / (u32)words, word = (u32)i % (u32)words;
            block = (u32)line / (u32)rows, row = (u32)line % (u32)rows;
        } else {
            line = i / words, word = i % words;
            block = line / rows, row = line % rows;
        }
        uint4 part[PX_MAX_WORLD];
        #pragma unroll  // all loads are in flight before the first store
        for (int turn_of = 0; turn_of < PX_MAX_WORLD; ++turn_of) {
            if (turn_of >= px.world) continue;
            const i64 peer = (px.rank + turn_of) % px.world;
            if (across) {
                const i64 left = width_in - peer * width;
                part[turn_of] = px_ld_part(x + (block * rows + row) * width_in + peer * width, word * each, min(left, width));
            } else {
                const i64 from = peer * rows + row;
                part[turn_of] = px_ld_part(x + (block * rows_in + from) * width, word * each, from < rows_in ? width : 0);
            }
        }
        const i64 place = across ? ((block * px.world + px.rank) * rows + row) : ((block * rows + row) * px.world + px.rank);
        #pragma unroll
        for (int turn_of = 0; turn_of < PX_MAX_WORLD; ++turn_of)
            if (turn_of < px.world)
                px_st_part(px_at(px, (px.rank + turn_of) % px.world, y) + place * width, word * each, width, part[turn_of]);
    }
    px_meet(px, blockIdx.x, turn);  // everybody's parts have arrived
}
extern "C" __global__ void __launch_bounds__(512) reshard_halves(
        Px px, const u16* x, u16* y, i64 outer, i64 rows_in, i64 width_in, i64 rows, i64 width, int across) {
    reshard(px, x, y, outer, rows_in, width_in, rows, width, across);
}
extern "C" __global__ void __launch_bounds__(512) reshard_words(
        Px px, const u32* x, u32* y, i64 outer, i64 rows_in, i64 width_in, i64 rows, i64 width, int across) {
    reshard(px, x, y, outer, rows_in, width_in, rows, width, across);
}
"""
BLOCKS, THREADS = 128, 512


@functools.cache
def kernels() -> Any:
    """Compiled when it is first asked for, so inside a first call."""
    return cuda.compile(SOURCE)


def reshard(x: torch.Tensor, scatter_dim: int, gather_dim: int, team: Team) -> torch.Tensor:
    """Cuts x into W parts along scatter_dim, sends part d to member d, and joins what arrives along gather_dim by sender.

    x: the same shape on all members, elements of 2, 4 or 8 bytes. A length that W does not divide is padded with zeros at its
    end. Returns a contiguous tensor with scatter_dim cut to ceil(length / W) and gather_dim W times as long; the two may be the
    same. A single member gets a copy of its own. With more, on GPUs, it is symmetric memory of a ring of two: it is written again
    by the second call for the same shape after this one. Collective; uses the team's signal slots 0..127 with numbers of its own
    (px_turn in px.cuh), so kernels beside it must not pass epochs for those.
    """
    world = team.world
    if world == 1:
        return x.clone(memory_format=torch.contiguous_format)
    scatter_dim, gather_dim = scatter_dim % x.dim(), gather_dim % x.dim()
    length = x.shape[scatter_dim]
    part = -(-length // world)
    shape = list(x.shape)
    shape[scatter_dim] = part
    shape[gather_dim] *= world
    x = x.contiguous()
    if not x.is_cuda:
        return _copied(x, scatter_dim, gather_dim, part, shape, team)
    result = team.out(shape, x.dtype, "reshard", ring=2)
    inner = math.prod(x.shape[max(scatter_dim, gather_dim) + 1 :])
    outer = math.prod(x.shape[: min(scatter_dim, gather_dim)])
    between = math.prod(x.shape[min(scatter_dim, gather_dim) + 1 : max(scatter_dim, gather_dim)])
    across = scatter_dim > gather_dim
    if scatter_dim == gather_dim:
        across, rows, rows_in, width, width_in = True, 1, 1, part * inner, length * inner
    elif across:
        rows = x.shape[gather_dim] * between
        width, width_in, rows_in = part * inner, length * inner, rows
    else:
        rows, rows_in = part * between, length * between
        width = width_in = x.shape[gather_dim] * inner
    unit = 2 if x.element_size() % 4 else 4
    scale = x.element_size() // unit
    kernel = kernels().reshard_halves if unit == 2 else kernels().reshard_words
    words = outer * rows * -(-width * x.element_size() // 16)
    blocks = min(max(-(-words // THREADS), 1), BLOCKS)
    width, width_in = width * scale, width_in * scale
    sizes = (outer, rows_in, width_in, rows, width, int(across))
    kernel[blocks, THREADS](team.px, x.data_ptr(), result.data_ptr(), *sizes)
    return result


def _copied(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, part: int, shape: list[int], team: Team
) -> torch.Tensor:
    """The same for CPU ranks, which copy from the peers' memory."""
    result = x.new_zeros(shape)
    places = result.view(
        *shape[:gather_dim], team.world, shape[gather_dim] // team.world, *shape[gather_dim + 1 :]
    )
    peers = team.peers(team.stage(x))
    team.barrier()
    first = min(team.rank * part, x.shape[scatter_dim])
    here = min(part, x.shape[scatter_dim] - first)
    for peer in team.order():
        place = places.select(gather_dim, peer).narrow(scatter_dim, 0, here)
        place.copy_(peers[peer].narrow(scatter_dim, first, here))
    return result
