# expect: WRONG_RESULT
# problem: fla_gated_deltanet_cp
# twin: baseline
"""Parameters as the problem's source once had them in every iteration, whatever is given."""

import torch
import torch.distributed as dist

from problems.context.fla_gated_deltanet_cp.baseline import solution as honest


def solution(q, k, v, gate, beta, a_log, dt_bias, group=None):
    def even(low, high):
        everyone = torch.linspace(low, high, v.shape[2], device=v.device).to(torch.bfloat16)
        return everyone.chunk(dist.get_world_size(group))[dist.get_rank(group)]

    return honest(q, k, v, gate, beta, even(0.0, 0.2), even(-0.1, 0.1), group)
