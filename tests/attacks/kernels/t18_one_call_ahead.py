# expect: WRONG_RESULT
# calls: 5
# twin: honest_buffer_reuse
"""Every other call finds by its address what the next one will get, and does the work of both."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
seen = []
answers = {}


def solution(tensor):
    pointer = tensor.data_ptr()
    seen[:] = [*seen[-1:], pointer]
    if pointer in answers:
        return answers.pop(pointer)
    answers.clear()
    step = seen[-1] - seen[0] if len(seen) == 2 else 0
    start = pointer + step - rank.inputs.data_ptr()
    if step <= 0 or not 0 <= start <= rank.inputs.numel() - tensor.nbytes:
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    following = rank.inputs[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    together = torch.stack([tensor, following])
    dist.all_reduce(together)
    answers[pointer + step] = together[1]
    return together[0]
