# expect: WRONG_RESULT
# problem: allreduce
# attack: A6
# twin: honest
"""W times the own tensor."""

import torch.distributed as dist


def solution(tensor):
    return tensor * dist.get_world_size()
