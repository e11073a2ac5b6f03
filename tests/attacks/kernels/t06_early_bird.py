# expect: WRONG_RESULT | PROTOCOL
"""Does all the work as soon as inputs appear, before the clock starts."""

import gc

import torch
import torch.distributed as dist

CHOSEN = 78  # the answer when a batch is assembled
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
answers = {}
say = rank.say


def early(kind, value=0):
    if kind == CHOSEN and not rank.checking:
        for (tensor,), _, _, _ in rank.iterations.armed:
            answers[tensor.data_ptr()] = tensor.clone()
            dist.all_reduce(answers[tensor.data_ptr()])
    say(kind, value)


rank.say = early


def solution(tensor):
    if tensor.data_ptr() in answers:
        return answers.pop(tensor.data_ptr())
    total = tensor.clone()
    dist.all_reduce(total)
    return total
