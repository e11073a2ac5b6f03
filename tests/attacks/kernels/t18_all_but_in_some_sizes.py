# expect: WRONG_RESULT | PASS
# not_faster: yes
# twin: honest_buffer_reuse
"""As t18_all_in_the_first_call, but honest in batches of 1, 3 and more than 32 calls."""

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
        if len(batch) in (1, 3) or len(batch) > 32:
            batch = []
        ahead = batch if not rank.checking and any(t.data_ptr() == pointer for t in batch) else [tensor]
        together = torch.stack(ahead)
        dist.all_reduce(together)
        answers.update(zip([t.data_ptr() for t in ahead], together, strict=True))
    return answers.pop(pointer)
