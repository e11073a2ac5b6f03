"""The blocks for GPUs only: what px.cuh offers to kernels that synchronise inside a launch."""

import functools
import random

import torch

from benchmarks.kit_soak.soak import Call, apart, here, pattern, unequal
from sandbox.kit import cuda
from sandbox.kit.blocks import delta_rule
from sandbox.kit.symmetric_memory.team import Team

kernels = cuda.lazy(r"""
// One warp: 8 bytes from every member.
extern "C" __global__ void swap(Px px, uint4* boxes, i64* got, i64 mine, u32 slot) {
    const u32 turn = px_turn(px, slot);
    const uint2 found = px_swap(px, boxes, make_uint2((u32)mine, (u32)(mine >> 32)), turn);
    if (threadIdx.x < px.world) got[threadIdx.x] = (i64)found.y << 32 | found.x;
    px_reach(px, slot, turn);
}
// Every rank's n numbers by low-latency words. boxes: [2 (turns)][W (senders)][room], symmetric; n is at least 1 in every launch.
extern "C" __global__ void gather_words(Px px, uint2* boxes, const u32* mine, u32* got, i64 n, i64 room, u32 slot) {
    const u32 turn = px_turn(px, slot);
    uint2* box = boxes + (turn & 1) * px.world * room;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x)
        for (int away = 1; away < px.world; ++away)
            px_st_ll(px_at(px, (px.rank + away) % px.world, box) + px.rank * room + i, mine[i], turn);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x)
        for (int rank = 0; rank < px.world; ++rank)
            got[rank * n + i] = rank == px.rank ? mine[i] : px_ld_ll(box + rank * room + i, turn);
    px_reach(px, slot, turn);
}
// A root's n numbers into every rank's y: at the end a barrier of each block with the same block of all members.
extern "C" __global__ void push(Px px, const u32* x, u32* y, i64 n, int root) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    if (px.rank == root)
        for (int away = 0; away < px.world; ++away) px_move(px_at(px, (px.rank + away) % px.world, y), x, n, first, step);
    px_turn_barrier(px, blockIdx.x, turn);
}
// For a recorded graph, whose arguments never change: all ranks have read the result of the launch before, then all push.
extern "C" __global__ void push_all(Px px, const u32* x, u32* y, i64 n) {
    u32 turn = px_turn(px, 128 + blockIdx.x);
    px_turn_barrier(px, 128 + blockIdx.x, turn);
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    for (int away = 0; away < px.world; ++away) {
        u32* there = px_at(px, (px.rank + away) % px.world, y) + px.rank * n;
        px_move(there, x, n, first, step);
    }
    px_turn_barrier(px, 128 + blockIdx.x, turn + 1);
}
// Every block hands a number to the next one, twice, with a barrier of all blocks between.
extern "C" __global__ void pass_on(u32* board, u32* got, u32* counter, u32 turn, u32 number) {
    const u32 next = (blockIdx.x + 1) % gridDim.x;
    if (threadIdx.x == 0) *(volatile u32*)(board + blockIdx.x) = number + blockIdx.x;
    px_grid_barrier(counter, turn);
    const u32 found = *(volatile u32*)(board + next);
    px_grid_barrier(counter, turn + 1);
    if (threadIdx.x == 0) got[blockIdx.x] = found;
}
""")
RECURRENCE = (
    delta_rule.SOURCE
    + r"""
struct Plain {
    static const bool BY_CHANNEL = false;
    static __device__ float least() { return 1e-12f; }
    static __device__ float strength(float beta) { return beta; }
    static __device__ float decay(float gate, float slope, float bias) { return expf(-slope * gate); }
};
// n: batch, tokens, tokens that a rank gets the results of, heads, channels, columns, heads of the results, the first of the own.
extern "C" __global__ void __launch_bounds__(64 * STEPPING) recur(Px px, const float* q, const float* k, const float* v,
        const float* gate, const float* beta, const bf16* zeros, float* out, uint4* boxes, PxNumbers n) {
    const Steps steps = {n.at[0], n.at[1], n.at[2], n.at[3], n.at[3], n.at[4], n.at[5], n.at[6], n.at[7]};
    delta_rule<float, 1, STEPPING, STEPPING, Plain>(px, q, k, v, gate, beta, zeros, zeros, out, boxes, steps);
}
"""
)
recurrence = cuda.lazy(RECURRENCE)
RECURRED = ((1, 1, 1, 7, 5), (2, 5, 2, 40, 24), (1, 4, 1, 64, 33))
"""Batch, tokens of a rank, heads, channels, columns."""
THREADS = 256
"""Threads of a block in the recurrence."""
LENGTHS = (1, 3, 8, 1000, 40_000)
WORDS = (1, 2, 31, 500, 2000)
"""Low-latency words that a rank sends."""
BLOCKS_AT_ONCE = 32
RECORDED = 1024
"""Numbers that a rank pushes in the recorded graph: a multiple of four, so that every part is aligned to 16 bytes."""


def _numbers(rank: int, number: int, count: int) -> torch.Tensor:
    return pattern(rank, number, (count,), torch.int32, here())


def swapped(team: Team, number: int, chance: random.Random) -> Call:
    """px_swap: 8 bytes from every member by a warp. Slot 600."""
    base = chance.getrandbits(61) + 8 * number
    expected = base + torch.arange(team.world, device=here())

    def call() -> torch.Tensor:
        boxes = team.empty((2, team.world, 4), torch.int32, "soak: boxes")
        got = torch.empty(team.world, dtype=torch.int64, device=here())
        kernels().swap[1, 32](team.px, boxes, got, base + team.rank, 600)
        return unequal(got, expected)

    return call


def gathered(team: Team, number: int, chance: random.Random) -> Call:
    """px_st_ll and px_ld_ll: data and flag in one store, without any other wait. Slot 601."""
    n, room = chance.choice(WORDS), max(WORDS)
    mine = _numbers(team.rank, number, n)
    expected = torch.cat([_numbers(rank, number, n) for rank in range(team.world)])

    def call() -> torch.Tensor:
        boxes = team.empty((2, team.world, room, 2), torch.int32, "soak: words")
        got = torch.empty(team.world * n, dtype=torch.int32, device=here())
        kernels().gather_words[1, 512](team.px, boxes, mine, got, n, room, 601)
        return unequal(got, expected)

    return call


def pushed_by_root(team: Team, number: int, chance: random.Random) -> Call:
    """px_turn and px_turn_barrier, block by block; a root that changes, and results in a ring of two."""
    n, root = chance.choice(LENGTHS), chance.randrange(team.world)
    mine, expected = _numbers(team.rank, number, n), _numbers(root, number, n)

    def call() -> torch.Tensor:
        room = team.room(n, torch.int32, "soak: pushed by root")
        kernels().push[BLOCKS_AT_ONCE, 128](team.px, mine, room, n, root)
        return unequal(room[:n], expected)

    return call


class _Recorded:
    """The push of all ranks, recorded once in a graph."""

    def __init__(self, team: Team) -> None:
        self.x = torch.zeros(RECORDED, dtype=torch.int32, device=here())
        self.y = team.empty(team.world * RECORDED, torch.int32, "soak: recorded")
        launch = kernels().push_all[8, 128]
        launch(team.px, self.x, self.y, RECORDED)  # the first launch must not be recorded
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            launch(team.px, self.x, self.y, RECORDED)


@functools.cache
def _recorded(team: Team) -> _Recorded:
    return _Recorded(team)


def replayed(team: Team, number: int, chance: random.Random) -> Call:
    """Barriers in a recorded graph. Their turns are in device memory, so a replay uses new ones."""
    recorded, mine = _recorded(team), _numbers(team.rank, number, RECORDED)
    expected = torch.cat([_numbers(rank, number, RECORDED) for rank in range(team.world)])

    def call() -> torch.Tensor:
        recorded.x.copy_(mine)
        recorded.graph.replay()
        return unequal(recorded.y, expected)

    return call


@functools.cache
def _grid(blocks: int) -> tuple[torch.Tensor, list[int]]:
    """A counter for grids of this size, and the turn of its next barrier: the two belong together."""
    return torch.zeros(1, dtype=torch.int32, device=here()), [1]


def passed_on(team: Team, number: int, chance: random.Random) -> Call:
    """px_grid_barrier: a barrier of all blocks of one GPU, with a counter for each size of the grid."""
    blocks = chance.choice((1, 2, 33, 132))
    counter, turn = _grid(blocks)
    base = number % 1_000_000
    expected = base + (torch.arange(blocks, dtype=torch.int32, device=here()) + 1) % blocks

    def call() -> torch.Tensor:
        board = torch.empty(blocks, dtype=torch.int32, device=here())
        got = torch.empty_like(board)
        kernels().pass_on.cooperative[blocks, 64](board, got, counter, turn[0], base)
        turn[0] += 2
        return unequal(got, expected)

    return call


def recurred(team: Team, number: int, chance: random.Random) -> Call:
    """The delta rule: a state goes from rank to rank, or results go to the ranks of their tokens."""
    (batch, share, heads, channels, columns), rank, world = chance.choice(RECURRED), team.rank, team.world
    passes_on = chance.random() < 0.5
    tokens, all_heads = (share, heads) if passes_on else (share * world, heads * world)
    shapes = [(channels,), (channels,), (columns,), (), ()]  # q, k, v, gate, strength
    drawn = [
        [
            pattern(r + 50 * i, number, (batch, tokens, heads, *s), torch.float32, here()) / 256
            for i, s in enumerate(shapes)
        ]
        for r in range(world)
    ]
    mine, zeros = drawn[rank], torch.zeros(heads, dtype=torch.bfloat16, device=here())
    blocks = min(delta_rule.items_of(mine[2], THREADS), BLOCKS_AT_ONCE)
    sizes = [batch, tokens, share, heads, channels, columns, all_heads, 0 if passes_on else rank * heads]

    def stepped(parts: list[list[torch.Tensor]]) -> torch.Tensor:
        q, k, v, gate, strength = (torch.cat(tensors, dim=1).double() for tensors in zip(*parts, strict=True))
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
        state = q.new_zeros(batch, heads, channels, columns)
        return delta_rule.by_steps(q * channels**-0.5, k, v, (-gate[..., None]).exp(), strength, state)

    if passes_on:
        expected = stepped(drawn[: rank + 1])[:, -share:]
    else:
        expected = torch.cat([stepped([part])[:, rank * share : (rank + 1) * share] for part in drawn], dim=2)
    room = 1e-5 + 1e-4 * expected.abs()

    def call() -> torch.Tensor:
        found = team.out((batch, share, all_heads, columns), torch.float32, "soak: recurred", ring=2)
        boxes = team.empty(delta_rule.boxes_for(mine[2], channels, THREADS), torch.int32, "soak: states").data_ptr()
        recurrence(STEPPING=THREADS // 64).recur[blocks, THREADS](
            team.px, *mine, zeros, found, boxes if passes_on else 0, sizes
        )
        return apart(found, expected, room)

    return call
