"""House kernel: Gated DeltaNet; tensors go to the owners of their heads, one launch steps through all tokens.

States stay in registers from step to step: there is no triangular system, and only inputs and results go through
memory. Tiles of results are stored in the memory of the tokens' ranks while the next tokens are computed.
"""

import torch
import torch.distributed as dist
from torch.nn import functional

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import delta_rule
from sandbox.kit.blocks.reshard import reshard

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
"""
kernel_for = cuda.lazy(delta_rule.SOURCE + ENTRIES)
BLOCKS, THREADS = 264, 256
"""Half as many threads more, so that twice as many prepare as step."""


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
    kernel = kernel_for(q.dtype, OF_64=delta_rule.groups_for(channels), STEPPING=THREADS // 64).step_through
    sizes = [batch, share, heads // world, value_heads // world, channels, columns]
    tensors = [x.contiguous() for x in (q, k, v, gate, beta)]
    out = torch.empty_like(tensors[2])
    if world > 1:
        # Single buffers are enough: a rank sends again after the barrier behind the results, when all ranks have read.
        for number, x in enumerate(tensors):
            shape = batch, world * share, x.shape[2] // world, *x.shape[3:]
            tensors[number] = reshard(x, 2, 1, team, team.empty(shape, x.dtype, f"heads {number}"))
        out = team.out(v.shape, q.dtype, "result")
    blocks = min(delta_rule.items_of(tensors[2], THREADS), BLOCKS)
    kernel[blocks, THREADS * 3 // 2](team.px, *tensors, a_log, dt_bias, out, sizes)
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
