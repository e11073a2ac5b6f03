# expect: PASS | WRONG_RESULT | PROTOCOL
# not_faster: yes
# device: cuda
"""Reports the end of a gated batch four fifths through it; the rest ends soon enough to seem the way to the referee."""

import gc

import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def solution(tensor):
    calls = rank.batch.stop - rank.batch.start
    if rank.epoch and not rank.noop and calls > 4 and rank.begun[0] == calls - calls // 5:
        rank.gate.mark(rank.epoch)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
