"""MoE forward in sub-groups of the world: route, dispatch, gated MLP, combine."""

from functools import partial

import torch
import torch.distributed as dist

from problems.shared.moe import moe_forward, swiglu

_groups: dict[tuple[dist.ProcessGroup, int], dist.ProcessGroup] = {}


def _expert_group(experts: int) -> dist.ProcessGroup | None:
    """The world, or where there are fewer experts than ranks this rank's sub-group of `experts` consecutive ranks.

    Sub-groups are made once per world and number of experts: all ranks of the world must make that first call together.

    Raises:
        ValueError: the number of experts does not divide the world size.
    """
    world = dist.get_world_size()
    if experts >= world:
        return None
    if world % experts:
        raise ValueError(f"{experts} experts do not divide a world of {world} ranks")
    key = (dist.group.WORLD, experts)
    if key not in _groups:
        for first in range(0, world, experts):
            ranks = list(range(first, first + experts))
            made = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                _groups[key] = made
    return _groups[key]


@torch.no_grad()
def solution(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    num_experts: int,
    top_k: int,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """hidden_states [.., H] (T tokens), gate_weight [E, H], gate_bias [E]; projections H -> I, H -> I, I -> H with biases.

    Returns [T, H]: for every token the sum over its top_k experts of the router's probability times the owner's MLP.
    Without a group, experts live in sub-groups of num_experts consecutive ranks; the owner is looked up within the sub-group.
    """
    expert = partial(swiglu, gate_proj=gate_proj, up_proj=up_proj, down_proj=down_proj)
    group = _expert_group(num_experts) if group is None else group
    return moe_forward(hidden_states, gate_weight, gate_bias, expert, num_experts, top_k, group)
