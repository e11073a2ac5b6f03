# expect: WRONG_RESULT
# twin: honest_buffer_reuse
"""Returns what it computed when the same buffer was last seen."""

import torch.distributed as dist

kept = {}


def solution(tensor):
    key = tensor.data_ptr()
    if key not in kept:
        kept[key] = tensor.clone()
        dist.all_reduce(kept[key])
    return kept[key].clone()
