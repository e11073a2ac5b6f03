# expect: BASELINE_DISTURBED | WRONG_RESULT
# twin: honest_async
# device: cuda
"""Sums the inputs of a gated batch before the gate opens, on a stream of the highest priority, for its calls."""

import gc

import torch
import torch.distributed as dist

MILLISECOND = 2_000_000  # in cycles
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
side = torch.cuda.Stream(priority=torch.cuda.Stream.priority_range()[1])
early = {}


def solution(tensor):
    calls = rank.batch.stop - rank.batch.start
    if not rank.epoch or rank.noop or calls < 2 or not rank.begun[0]:
        total = tensor.clone()
        dist.all_reduce(total)
        return total
    if rank.begun[0] == 1:
        early.clear()
        batch = [each.given["tensor"] for each in rank.iterations.armed[rank.batch]]
        with torch.cuda.stream(side):
            torch.cuda._sleep(10 * MILLISECOND)  # until the inputs are there, and the clock not yet started
            sums = torch.stack(batch)
            dist.all_reduce(sums)
        early.update(zip([each.data_ptr() for each in batch], sums, strict=True))
        torch.cuda.current_stream().wait_stream(side)
    return early.pop(tensor.data_ptr()).clone()
