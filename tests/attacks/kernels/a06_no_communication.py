# expect: WRONG_RESULT
"""W times the own tensor."""

import torch.distributed as dist


def solution(tensor):
    return tensor * dist.get_world_size()
