"""House kernel: Kimi Delta Attention; a launch steps through a rank's tokens, states pass between ranks as a wavefront.

A rank neither gathers earlier tokens nor repeats their steps. When 16 columns of a state have passed the rank's last
token, the block stores them in the next rank's memory, as words with flags. The same block of that rank waits for them.
Successive calls overlap: a rank starts the next call while its successor works on this one.
"""

import torch
import torch.distributed as dist
from torch.nn import functional

from sandbox.kit import cuda, symm
from sandbox.kit.blocks import delta_rule
from sandbox.kit.blocks.sums import add_up, boxes

ENTRY = r"""
struct Kimi {
    static const bool BY_CHANNEL = true;
    static __device__ float least() { return 1e-12f; }
    static __device__ float strength(float beta) { return 1 / (1 + expf(-beta)); }
    static __device__ float decay(float gate, float slope, float bias) { return expf(-5 / (1 + expf(-slope * (gate + bias)))); }
};
extern "C" __global__ void __launch_bounds__(64 * STEPPING) step_through(Px px, const TYPE* q, const TYPE* k, const TYPE* v,
        const TYPE* gate, const TYPE* beta, const bf16* a_log, const bf16* dt_bias, TYPE* out, uint4* boxes, PxNumbers n) {
    const Steps steps = {n.at[0], n.at[1], n.at[1], n.at[2], n.at[2], n.at[3], n.at[4], n.at[2], 0};
    delta_rule<TYPE, OF_64, STEPPING, STEPPING, Kimi>(px, q, k, v, gate, beta, a_log, dt_bias, out, boxes, steps);
}
"""
kernel_for = cuda.lazy(delta_rule.SOURCE + ENTRY)
BLOCKS, THREADS = 264, 256
"""Two blocks on each multiprocessor; a block takes every BLOCKS-th slice of the states."""


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cp_group: dist.ProcessGroup | None = None,
    tp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """q, k, g [B, S, H, K], v [B, S, H, V], beta [B, S, H] logits, a_log [H], dt_bias [H·K] -> [B, S, H, V].

    The sequence is sharded over cp_group in rank order. Results are rounded to q's dtype and summed over tp_group (if
    any): the sum is float32 and rounded to q's dtype.
    """
    batch, tokens, heads, channels = q.shape
    use_kernel = q.is_cuda and q.dtype in cuda.FLOATS and channels <= delta_rule.MOST_CHANNELS
    kernel = None
    if use_kernel:  # compiled before any barrier
        groups = delta_rule.groups_for(channels)
        kernel = kernel_for(q.dtype, OF_64=groups, STEPPING=THREADS // 64).step_through
    partners = symm.team(tp_group) if tp_group is not None else None
    sums = None
    if partners is not None and partners.world > 1:
        sums = boxes(v.numel(), v.dtype, partners, v.is_cuda)
    if kernel is not None:
        out = torch.empty_like(v, memory_format=torch.contiguous_format)
        team = symm.team(cp_group)
        states: torch.Tensor | int = 0
        if team.world > 1:
            states = team.empty(delta_rule.boxes_for(v, channels, THREADS), torch.int32, "states").data_ptr()
        given = [x.contiguous() for x in (q, k, v, g, beta)]
        sizes = [batch, tokens, heads, channels, v.shape[3]]
        blocks = min(delta_rule.items_of(v, THREADS), BLOCKS)
        kernel[blocks, THREADS](team.px, *given, a_log, dt_bias, out, states, sizes)
    else:
        out = by_library(q, k, v, g, beta, a_log, dt_bias, cp_group)
    if partners is not None and sums is not None:
        add_up(out, sums, partners)
    return out


def by_library(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    group: dist.ProcessGroup | None,
) -> torch.Tensor:
    """Computes the sharded attention by library calls, in q's dtype; ranks wait for the previous rank's state."""
    dtype, (heads, channels) = q.dtype, q.shape[2:]
    wide = torch.promote_types(dtype, torch.float32)
    q, k, v, g, beta = (x.to(wide) for x in (q, k, v, g, beta))
    decay = torch.exp(-5 * torch.sigmoid(a_log.to(wide).exp()[:, None] * (g + dt_bias.to(wide).view(heads, channels))))
    q = functional.normalize(q, dim=-1, eps=1e-12) * channels**-0.5
    k = functional.normalize(k, dim=-1, eps=1e-12)
    state = v.new_zeros(v.shape[0], heads, channels, v.shape[3])
    members = dist.get_process_group_ranks(group)
    place = members.index(dist.get_rank())
    if place > 0:
        dist.recv(state, members[place - 1], group=group)
    out = delta_rule.by_steps(q, k, v, decay, torch.sigmoid(beta), state)
    if place + 1 < len(members):
        dist.send(state, members[place + 1], group=group)
    return out.to(dtype)
