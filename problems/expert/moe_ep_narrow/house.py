"""House kernel: MoE layer in sub-groups of the world, which are teams of symmetric memory and need no process group.

With fewer experts than ranks, every num_experts consecutive ranks share one set of experts.
"""

import torch
import torch.distributed as dist

from sandbox.kit import symm
from sandbox.kit.blocks.experts import moe_layer
from sandbox.kit.symmetric_memory.team import Team

symm.reserve(3 << 30)  # tokens of all ranks and their results, of the largest sizes


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
    Without a group and with fewer experts than ranks, every num_experts consecutive ranks are a sub-group with all
    experts.
    """
    mlp = (gate_proj.weight, gate_proj.bias), (up_proj.weight, up_proj.bias), (down_proj.weight, down_proj.bias)
    return moe_layer(hidden_states, gate_weight, gate_bias, mlp, num_experts, top_k, team_of(group, num_experts))


def team_of(group: dist.ProcessGroup | None, experts: int) -> Team:
    """Returns the group's team; without a group the world's, or this rank's sub-group if experts < world size.

    Raises:
        ValueError: the number of experts does not divide the world size.
    """
    world = symm.connect()
    if group is not None or experts >= world.world:
        return symm.team(group)
    if world.world % experts:
        raise ValueError(f"{experts} experts do not divide a world of {world.world} ranks")
    first = world.rank - world.rank % experts
    return world.sub(range(first, first + experts))
