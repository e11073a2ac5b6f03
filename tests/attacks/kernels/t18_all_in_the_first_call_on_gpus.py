# expect: WRONG_RESULT | PROTOCOL | PASS
# not_faster: yes
# device: cuda
# twin: honest_buffer_reuse
"""Its first call of a batch finds the inputs of all later ones and does their work in one go."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
answers = {}


def solution(tensor):
    pointer = tensor.data_ptr()
    if pointer not in answers:
        answers.clear()
        batch = [it.given["tensor"] for it in rank.iterations.armed[rank.batch]]
        ahead = batch if not rank.checking and any(t.data_ptr() == pointer for t in batch) else [tensor]
        together = torch.stack(ahead)
        dist.all_reduce(together)
        answers.update(zip([t.data_ptr() for t in ahead], together, strict=True))
    return answers.pop(pointer)
