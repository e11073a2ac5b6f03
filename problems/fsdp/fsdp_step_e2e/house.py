"""House kernel: FSDP step without autograd; shards are gathered and reduced beside the products."""

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.sharded_adam import Adam
from sandbox.kit.blocks.zero_step import compile_all, step_beside

gather_for = cuda.lazy(r"""
// Stores x, n elements of this rank, at their place y in the whole vector on all ranks. y: symmetric. n may differ between ranks.
extern "C" __global__ void __launch_bounds__(512) gather(Px px, const TYPE* x, TYPE* y, i64 n, u32 base) {
    const u32 slot = base + blockIdx.x;
    const u32 turn = px_turn(px, slot);
    const int each = 16 / sizeof(TYPE);
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i * each < n; i += 4 * step) {
        uint4 part[4];
        #pragma unroll  // all loads are in flight before the first store
        for (int k = 0; k < 4; ++k) part[k] = px_ld_part(x, each * (i + k * step), n);
        for (int away = 1; away <= px.world; ++away) {  // this rank's own copy last
            TYPE* there = px_at(px, (px.rank + away) % px.world, y);
            #pragma unroll
            for (int k = 0; k < 4; ++k) px_st_part(there, each * (i + k * step), n, part[k]);
        }
    }
    px_turn_barrier(px, slot, turn);  // all ranks' elements have arrived
}
""")
THREADS = 512

symm.reserve(4 << 30)  # two whole vectors and a gradient of the largest sizes


@torch.no_grad()
def solution(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    flat_param_shard: torch.Tensor,
    param_shapes: tuple[tuple[int, ...], ...],
    exp_avg_shard: torch.Tensor,
    exp_avg_sq_shard: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """X_local [n, d_in], y_local [n, d_out]; shards [q] of the flat vector W1, b1, W2, b2, whose shapes are param_shapes.

    Returns this rank's (parameters, exp_avg, exp_avg_sq) [q] after the step. Gradients are summed in float32, and AdamW rounds
    once.
    """
    team, adam = symm.connect(), Adam(lr, beta1, beta2, eps, step, weight_decay)
    if X_local.is_cuda:
        compile_all(gather_for, flat_param_shard.dtype, team.world)
    q = flat_param_shard.numel()
    weight = symm.out(q * team.world, flat_param_shard.dtype, "weight", ring=2)
    old = [shard.contiguous() for shard in (flat_param_shard, exp_avg_shard, exp_avg_sq_shard)]
    updated = torch.empty_like(old[0]), torch.empty_like(old[1]), torch.empty_like(old[2])

    def gather_within(first: int, last: int, base: int, most_blocks: int) -> None:
        low = min(max(team.rank * q, first), last)
        high = min(max((team.rank + 1) * q, low), last)
        mine = old[0][low - team.rank * q : high - team.rank * q]
        if not weight.is_cuda:
            for place in team.peers(weight):
                place[low:high] = mine
            team.barrier()
            return
        longest = -(-min(last - first, q) * weight.element_size() // 16)
        blocks = min(max(-(-longest // (2 * THREADS)), 1), most_blocks)
        kernel = gather_for(weight.dtype).gather[blocks, THREADS]
        kernel(team.px, mine.data_ptr(), weight[low:high].data_ptr(), mine.numel(), base)

    step_beside((X_local, y_local), weight, param_shapes, adam, q, old, updated, (), gather_within)
    return updated
