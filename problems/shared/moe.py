"""Expert-parallel mixture of experts: moving token rows to the ranks that own their experts, and back.

Experts lie contiguously on the ranks of the group: expert e belongs to group rank e // (E / W).
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

Module = Callable[[torch.Tensor], torch.Tensor]


def exchange_rows(
    rows: torch.Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Sends the next send[d] rows [.., H] to rank d of the group; returns what arrives, receive[s] rows from rank s."""
    if dist.get_world_size(group) == 1:
        return rows
    arrived = rows.new_empty(sum(receive), *rows.shape[1:])
    dist.all_to_all_single(arrived, rows.contiguous(), receive, send, group=group)
    return arrived


def regroup_chunks(rows: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Rows [R, H] that lie in chunks (a, b) of sizes[a, b] rows (int64 [A, B], sum R), a-major, in b-major order."""
    if 1 in sizes.shape:
        return rows
    starts = sizes.flatten().cumsum(0).view_as(sizes) - sizes
    moved_sizes, moved_starts = sizes.t().flatten(), starts.t().flatten()
    shift = moved_starts - (moved_sizes.cumsum(0) - moved_sizes)
    count = rows.shape[0]
    source = torch.arange(count, device=rows.device) + shift.repeat_interleave(moved_sizes, output_size=count)
    return rows.index_select(0, source)


def route(
    tokens: torch.Tensor, gate_weight: torch.Tensor, gate_bias: torch.Tensor | None, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax router: tokens [T, H], gate_weight [E, H], gate_bias [E] -> (weights [T, K], experts int64 [T, K]).

    The weights are the K largest probabilities as they are; they do not sum to 1.
    """
    probabilities = F.softmax(F.linear(tokens, gate_weight, gate_bias), dim=-1)
    weights, experts = torch.topk(probabilities, top_k, dim=-1)
    return weights, experts


def swiglu(x: torch.Tensor, gate_proj: Module, up_proj: Module, down_proj: Module) -> torch.Tensor:
    """Gated MLP: x [R, H] -> down(silu(gate(x)) · up(x)) [R, H]."""
    return down_proj(F.silu(gate_proj(x)) * up_proj(x))


def moe_forward(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    expert: Module,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """One MoE layer: hidden_states [.., H] -> [T, H], the router-weighted sum of each token's K experts.

    expert maps rows [R, H] to rows [R, H] with this rank's weights; all experts of a rank share it. The host waits once,
    for the table of counts that the exchange's splits are made of.
    """
    tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
    weights, experts = route(tokens, gate_weight, gate_bias, top_k)
    order = experts.flatten().argsort(stable=True)  # (token, k) pairs by expert, then by token
    rows = tokens[order // top_k]
    send, receive = _splits(experts, num_experts, group)
    outputs = expert(exchange_rows(rows, send, receive, group))
    returned = exchange_rows(outputs, receive, send, group)
    weighted = returned * weights.flatten()[order].unsqueeze(1)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device=order.device)
    return weighted[place].view(*experts.shape, -1).sum(dim=1)


def _splits(experts: torch.Tensor, num_experts: int, group: dist.ProcessGroup | None) -> tuple[list[int], list[int]]:
    """Rows to send to and to receive from each rank of the group, from the choices [T, K] of all its ranks."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if world == 1:
        return [experts.numel()], [experts.numel()]
    chosen = experts.flatten()
    counts = chosen.new_zeros(num_experts).scatter_add_(0, chosen, torch.ones_like(chosen))
    gathered = counts.new_empty(world, num_experts)
    dist.all_gather_into_tensor(gathered, counts, group=group)
    table = gathered.view(world, world, -1).sum(dim=2).tolist()  # rows from source to owner
    return table[rank], [row[rank] for row in table]
