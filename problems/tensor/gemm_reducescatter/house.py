"""House kernel: partial products leave for their owners by copy engine; the owner's product adds them."""

import functools
from typing import Any

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.columns import kernels, meet
from sandbox.kit.blocks.side_stream import beside, join, mark

SOURCE = r"""
// partial: [W (owners)][n], symmetric; y: [n]. Reads this rank's block of all ranks and adds it up in float32, in rank order.
template <class T> static __device__ void pull(const Px& px, T* partial, T* y, i64 n) {
    const u32 slot = blockIdx.x, turn = px_turn(px, slot);
    px_meet(px, slot, turn);  // all ranks' products are complete
    const int each = 16 / sizeof(T);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += (i64)gridDim.x * blockDim.x) {
        uint4 part[PX_MAX_WORLD];
        #pragma unroll  // all loads are in flight before the first addition
        for (int source = 0; source < PX_MAX_WORLD; ++source)
            if (source < px.world) part[source] = px_ld_part(px_at(px, source, partial) + px.rank * n, each * i, n);
        PxSum<T> total;
        #pragma unroll
        for (int source = 0; source < PX_MAX_WORLD; ++source)
            if (source < px.world) total.add(part[source]);
        px_st_part(y, each * i, n, total.rounded());
    }
}
// x: `count` arrays of n elements that begin `apart` elements from one another. The first becomes their sum.
template <class T> static __device__ void add_up(T* x, i64 n, i64 apart, int count) {
    const int each = 16 / sizeof(T);
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += (i64)gridDim.x * blockDim.x) {
        PxSum<T> total;
        #pragma unroll 4
        for (int k = 0; k < count; ++k) total.add(px_ld_part(x + k * apart, each * i, n));
        px_st_part(x, each * i, n, total.rounded());
    }
}
"""
ENTRIES = r"""
extern "C" __global__ void __launch_bounds__(512) pull_and_add(Px px, TYPE* partial, TYPE* y, i64 n) {
    pull<TYPE>(px, partial, y, n);
}
extern "C" __global__ void __launch_bounds__(512) add_arrived(TYPE* x, i64 n, i64 apart, int count) {
    add_up<TYPE>(x, n, apart, count);
}
"""
TYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "float"}
BLOCKS, THREADS = 128, 512
LARGE = 16 << 20
"""Bytes of a rank's result from which on blocks are sent beside products."""
CHUNKS = 2
"""Of a block of rows: one is sent while the next is multiplied."""
SLOT = 1000

symm.reserve(4 << 30)  # two buffers for what arrives, of the largest sizes


@functools.cache
def kernel_for(dtype: torch.dtype) -> tuple[Any, Any]:
    """(pull_and_add, add_arrived); compiled when they are first asked for."""
    module: Any = cuda.compile(SOURCE + ENTRIES.replace("TYPE", TYPES[dtype]))
    return module.pull_and_add, module.add_arrived


@torch.no_grad()
def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    """A_local [M, K/W], B_local [K/W, N] -> [M/W, N]: row block r of Σ_s A_s B_s, on rank r.

    Partial products are rounded to the run dtype, as the baseline's are; sums are float32.
    """
    team = symm.connect()
    rows, columns, world = A_local.shape[0] // team.world, B_local.shape[1], team.world
    if world == 1:
        return torch.mm(A_local, B_local)
    if A_local.is_cuda:
        kernels()  # before the ranks meet for their buffers: a rank that waits in a kernel traps after 2 s
        kernel_for(A_local.dtype)
    if A_local.is_cuda and rows * columns * A_local.element_size() >= LARGE:
        return in_chunks(A_local.contiguous().view(world, rows, -1), B_local, team)
    partial = symm.out((world, rows, columns), A_local.dtype, "partial", ring=2)
    torch.mm(A_local, B_local, out=partial.view(world * rows, columns))
    result = A_local.new_empty((rows, columns))
    if not A_local.is_cuda:
        parts = symm.peers(partial)
        symm.barrier()
        total = torch.zeros(rows, columns)
        for part in parts:
            total += part[team.rank]
        return result.copy_(total)
    blocks = min(max(-(-result.nbytes // (16 * THREADS)), 1), BLOCKS)
    kernel_for(A_local.dtype)[0][blocks, THREADS](team.px, partial, result, result.numel())
    return result


def in_chunks(a: torch.Tensor, b: torch.Tensor, team: symm.Team) -> torch.Tensor:
    """a [W (owners), M/W, K/W], b [K/W, N]: blocks in the order r+1, r+2, ..., so that no rank receives from two at a time.

    The own block comes last: its product adds what has arrived in its own float32 sum, without a pass over the result.
    """
    others, (_, rows, _), columns = team.world - 1, a.shape, b.shape[1]
    # Two buffers are enough: a rank writes in call e+2 only after all ranks have begun call e+1.
    arrived = team.out((others, rows, columns), a.dtype, "arrived", ring=2)
    places = team.peers(arrived)
    edges = [rows * number // CHUNKS for number in range(CHUNKS + 1)]
    parts = [slice(edges[number], edges[number + 1]) for number in range(CHUNKS)]
    partial = a.new_empty((others, rows, columns))
    complete = []
    for away in range(1, team.world):
        owner = (team.rank + away) % team.world
        for part in parts:
            torch.mm(a[owner, part], b, out=partial[away - 1, part])
            with beside():
                places[owner][away - 1, part].copy_(partial[away - 1, part])
                if away == others:
                    meet(arrived, team, SLOT)
                    add_others(arrived, part)
                    complete.append(mark())
    result = arrived[0]
    for part, place in zip(parts, complete, strict=True):
        join(place)  # these rows have arrived
        result[part].addmm_(a[team.rank, part], b)
    return result


def add_others(arrived: torch.Tensor, part: slice) -> None:
    """Rows `part` of arrived[0] become the sum of all that has arrived for them."""
    others, _, columns = arrived.shape
    if others > 1:
        count = (part.stop - part.start) * columns
        blocks = min(max(-(-count * arrived.element_size() // (16 * THREADS)), 1), BLOCKS)
        first = arrived[0, part].data_ptr()
        kernel_for(arrived.dtype)[1][blocks, THREADS](first, count, arrived.stride(0), others)
