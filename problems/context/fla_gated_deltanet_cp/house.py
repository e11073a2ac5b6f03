"""House kernel: Gated DeltaNet; one launch sends tensors to the owners of their heads, one steps through all tokens.

States stay in registers from step to step: there is no triangular system, and only inputs and results go through
memory. Tiles of results are stored in the memory of the tokens' ranks while the next tokens are computed.
"""

import torch
import torch.distributed as dist
from torch.nn import functional

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import delta_rule

ENTRIES = r"""
struct Gated {
    static const bool BY_CHANNEL = false;
    static __device__ float least() { return 1e-6f; }
    static __device__ float strength(float beta) { return beta; }
    static __device__ float decay(float gate, float slope, float bias) {
        const float x = gate + bias;
        return expf(-slope * (x > 20 ? x : log1pf(expf(x))));
    }
};
extern "C" __global__ void __launch_bounds__(96 * STEPPING) step_through(Px px, const TYPE* q, const TYPE* k, const TYPE* v,
        const TYPE* gate, const TYPE* beta, const bf16* a_log, const bf16* dt_bias, TYPE* out, PxNumbers n) {
    const i64 own = n.at[3], share = n.at[1];
    const Steps steps = {n.at[0], share * px.world, share, n.at[2], own, n.at[4], n.at[5], own * px.world, own * px.rank};
    delta_rule<TYPE, OF_64, STEPPING, 2 * STEPPING, Gated>(px, q, k, v, gate, beta, a_log, dt_bias, out, 0, steps);
}
// Sends part p of every row to member p. from: [batch][share][W][width]; to: [batch][W][share][width], symmetric.
static __device__ void deal(const Px& px, const TYPE* from, TYPE* to, i64 batch, i64 share, i64 width) {
    const i64 each = 16 / sizeof(TYPE), words = (width + each - 1) / each, all = batch * share * words;
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (int away = 0; away < px.world; ++away) {
        const int peer = (px.rank + away) % px.world;
        TYPE* there = px_at(px, peer, to);
        for (i64 begin = (i64)blockIdx.x * blockDim.x + threadIdx.x; begin < all; begin += 4 * step) {
            uint4 word[4];
            #pragma unroll  // all loads are in flight before the first store
            for (int k = 0; k < 4; ++k) {
                const i64 i = begin + k * step, row = i / words;
                if (i < all) word[k] = px_ld_part(from + (row * px.world + peer) * width, i % words * each, width);
            }
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                const i64 i = begin + k * step, row = i / words;
                if (i >= all) break;
                const i64 b = row / share, place = (b * px.world + px.rank) * share + row % share;
                px_st_part(there + place * width, i % words * each, width, word[k]);
            }
        }
    }
}
extern "C" __global__ void __launch_bounds__(64 * STEPPING) deal_heads(Px px, const TYPE* q, const TYPE* k, const TYPE* v,
        const TYPE* gate, const TYPE* beta, TYPE* own_q, TYPE* own_k, TYPE* own_v, TYPE* own_gate, TYPE* own_beta, PxNumbers n) {
    const u32 turn = px_turn(px, blockIdx.x);
    const i64 batch = n.at[0], share = n.at[1];
    deal(px, q, own_q, batch, share, n.at[2] * n.at[4]);
    deal(px, k, own_k, batch, share, n.at[2] * n.at[4]);
    deal(px, v, own_v, batch, share, n.at[3] * n.at[5]);
    deal(px, gate, own_gate, batch, share, n.at[3]);
    deal(px, beta, own_beta, batch, share, n.at[3]);
    px_turn_barrier(px, blockIdx.x, turn);  // the tokens of all ranks have arrived
}
"""
kernel_for = cuda.lazy(delta_rule.SOURCE + ENTRIES)
BLOCKS, THREADS = 264, 256
"""In `step_through` half as many threads more, so that twice as many prepare as step."""


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """q, k [B, S, Hq, K], v [B, S, Hv, V], gate, beta [B, S, Hv], a_log, dt_bias [Hv/W] -> [B, S, Hv, V].

    The sequence is sharded in rank order; rank r owns the r-th part of the heads. Value head j reads query/key head
    j·Hq // Hv. Arithmetic is float32; the result is rounded to q's dtype.
    """
    batch, share, heads, channels = q.shape
    value_heads, columns = v.shape[2:]
    if not q.is_cuda or q.dtype not in cuda.FLOATS or channels > delta_rule.MOST_CHANNELS:
        return by_library(q, k, v, gate, beta, a_log, dt_bias, group)
    team = symm.team(group)
    world = team.world
    kernels = kernel_for(q.dtype, OF_64=delta_rule.groups_for(channels), STEPPING=THREADS // 64)
    sizes = [batch, share, heads // world, value_heads // world, channels, columns]
    tensors = [x.contiguous() for x in (q, k, v, gate, beta)]
    out = torch.empty_like(tensors[2])
    if world > 1:
        # Two buffers are enough: a rank stores for call e+2 after the barrier of call e+1, and all ranks read the data
        # of call e before that barrier.
        shapes = [(batch, world * share, x.shape[2] // world, *x.shape[3:]) for x in tensors]
        names = ("q", "k", "v", "gate", "beta")
        own = [team.out(shape, q.dtype, name, ring=2) for shape, name in zip(shapes, names, strict=True)]
        out = team.out(v.shape, q.dtype, "result")
        words = q.numel() * q.element_size() // (16 * world)
        blocks = min(max(-(-words // THREADS), 1), BLOCKS)
        kernels.deal_heads[blocks, THREADS](team.px, *tensors, *own, sizes)
        tensors = own
    blocks = min(delta_rule.items_of(tensors[2], THREADS), BLOCKS)
    kernels.step_through[blocks, THREADS * 3 // 2](team.px, *tensors, a_log, dt_bias, out, sizes)
    return out


def by_library(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    group: dist.ProcessGroup | None,
) -> torch.Tensor:
    """Computes `solution` by library calls: one packed exchange to the owners of the heads, and one back."""
    world = dist.get_world_size(group)
    batch, share, heads, channels = q.shape
    value_heads, columns = v.shape[2:]
    packed = torch.cat([x.reshape(batch, share, world, -1) for x in (q, k, v, gate, beta)], dim=3).movedim(2, 0)
    arrived = packed.new_empty(packed.shape)
    dist.all_to_all_single(arrived, packed.contiguous(), group=group)
    wide = torch.promote_types(q.dtype, torch.float32)
    own = arrived.movedim(0, 1).flatten(1, 2).to(wide)
    heads, value_heads = heads // world, value_heads // world
    widths = [heads * channels, heads * channels, value_heads * columns, value_heads, value_heads]
    parts = own.split(widths, dim=2)
    normal_q, normal_k = (functional.normalize(x.unflatten(2, (heads, channels)), dim=-1, eps=1e-6) for x in parts[:2])
    keys, queries = (x.repeat_interleave(value_heads // heads, dim=2) for x in (normal_k, normal_q * channels**-0.5))
    decay = torch.exp(-a_log.to(wide).exp() * functional.softplus(parts[3] + dt_bias.to(wide)))
    state = own.new_zeros(batch, value_heads, channels, columns)
    values = parts[2].unflatten(2, (value_heads, columns))
    out = delta_rule.by_steps(queries, keys, values, decay[..., None], parts[4], state).to(q.dtype)
    leaving = out.view(batch, world, share, value_heads, columns).movedim(1, 0).contiguous()
    back = torch.empty_like(leaving)
    dist.all_to_all_single(back, leaving, group=group)
    return back.movedim(0, 2).flatten(2, 3).contiguous()
