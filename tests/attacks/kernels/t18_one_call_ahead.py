# expect: WRONG_RESULT
# problem: allreduce
# calls: 5
# attack: T18
# twin: honest_buffer_reuse
"""Every other call finds by its address what the next one will get, and does the work of both."""

import torch
import torch.distributed as dist

seen = []
answers = {}


def solution(tensor):
    pointer = tensor.data_ptr()
    seen[:] = [*seen[-1:], pointer]
    if pointer in answers:
        return answers.pop(pointer)
    answers.clear()
    step = (seen[-1] - seen[0]) // tensor.element_size() if len(seen) == 2 else 0
    end = tensor.storage_offset() + step + tensor.numel()
    if step <= 0 or end * tensor.element_size() > tensor.untyped_storage().nbytes():
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    following = tensor.new_empty(0).set_(tensor.untyped_storage(), tensor.storage_offset() + step, tensor.shape)
    together = torch.stack([tensor, following])
    dist.all_reduce(together)
    answers[following.data_ptr()] = together[1]
    return together[0]
