"""House kernel: FSDP step without autograd; shards are gathered and reduced beside the products."""

import functools

import torch

from sandbox.kit import cuda, symm
from sandbox.kit.blocks.perceptron import kernel_for as gradient_kernels
from sandbox.kit.blocks.perceptron import parameters_in, write_gradient
from sandbox.kit.blocks.sharded_adam import Adam, step_slice
from sandbox.kit.blocks.sharded_adam import kernel_for as step_kernel
from sandbox.kit.blocks.side_stream import beside, join

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
LARGE = 16 << 20
"""Bytes of parameters from which exchanges run beside products."""
PIECES = 4
"""Pieces of the first layer's gradient: each is reduced and applied beside the product of the next."""
FEW, ALL = 32, 128
"""Blocks of an exchange that runs beside a product, and of one that runs alone."""

symm.reserve(4 << 30)  # two whole vectors and a gradient of the largest sizes


@functools.cache
def compile_all(dtype: torch.dtype, world: int) -> None:
    """Compiles before the first launch: a kernel that waits for a rank which still compiles traps after 2 s."""
    gather_for(torch.uint32 if dtype.itemsize == 4 else torch.uint16)
    gradient_kernels(dtype)
    step_kernel(dtype, WORLD=world)


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
        compile_all(flat_param_shard.dtype, team.world)
    q = flat_param_shard.numel()
    count, border = q * team.world, torch.Size(param_shapes[0]).numel() + torch.Size(param_shapes[1]).numel()
    weight = symm.out(count, flat_param_shard.dtype, "weight", ring=2)
    gradient = symm.empty(count, flat_param_shard.dtype, "gradient")  # free again at the end of a call
    old = [shard.contiguous() for shard in (flat_param_shard, exp_avg_shard, exp_avg_sq_shard)]
    updated = torch.empty_like(old[0]), torch.empty_like(old[1]), torch.empty_like(old[2])

    def within(first: int, last: int) -> tuple[int, int, int]:
        """(low, high) of this rank's part of elements `first` to `last`, and the 16-byte words of the longest part."""
        low = min(max(team.rank * q, first), last)
        high = min(max((team.rank + 1) * q, low), last)
        return low, high, -(-min(last - first, q) * weight.element_size() // 16)

    def gather_within(first: int, last: int, base: int, most_blocks: int) -> None:
        low, high, longest = within(first, last)
        mine = old[0][low - team.rank * q : high - team.rank * q]
        if not weight.is_cuda:
            for place in team.peers(weight):
                place[low:high] = mine
            team.barrier()
            return
        kernel = gather_for(cuda.unit_of(weight)).gather
        blocks = min(max(-(-longest // (2 * THREADS)), 1), most_blocks)
        kernel[blocks, THREADS](team.px, mine.data_ptr(), weight[low:high].data_ptr(), mine.numel(), base)

    def step_within(first: int, last: int, most_blocks: int) -> None:
        low, high, longest = within(first, last)
        place = slice(low - team.rank * q, high - team.rank * q)
        before, after = [part[place] for part in old], [part[place] for part in updated]
        step_slice(team, adam, gradient[low:high], before, after, (), 512, longest, most_blocks)

    X, y = X_local.contiguous(), y_local.contiguous()
    parameters, gradients = parameters_in(weight, param_shapes), parameters_in(gradient, param_shapes)
    if not weight.is_cuda or weight.nbytes < LARGE:
        gather_within(0, count, 0, ALL)
        write_gradient(X, y, parameters, gradients)
        step_within(0, count, ALL)
    else:

        def ready(first: int, last: int) -> None:
            with beside():
                step_within(first, last, ALL if last == border else FEW)

        # Weights of the second layer arrive during the first product. Both exchanges have their own signal slots.
        gather_within(0, border, 0, ALL)
        with beside():
            gather_within(border, count, 256, FEW)
        write_gradient(X, y, parameters, gradients, join, ready, PIECES)
        join()
    return updated
