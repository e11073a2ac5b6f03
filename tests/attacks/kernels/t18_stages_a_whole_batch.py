# expect: WRONG_RESULT | PASS
# not_faster: yes
# twin: honest_buffer_reuse
"""Its first call of a batch shows its peers the inputs of all calls; later ones add up without communication."""

import gc

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
staged = {}


def solution(tensor):
    pointer = tensor.data_ptr()
    if pointer not in staged:
        staged.clear()
        batch = [it.given["tensor"] for it in rank.iterations.armed[rank.batch]]
        ahead = batch if not rank.checking and any(t.data_ptr() == pointer for t in batch) else [tensor]
        mine = torch.stack(ahead)
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        staged.update({t.data_ptr(): (parts, n) for n, t in enumerate(ahead)})
    parts, number = staged.pop(pointer)
    return torch.stack([part[number] for part in parts]).float().sum(0).to(tensor.dtype)
