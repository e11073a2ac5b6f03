# expect: WRONG_RESULT | WRONG_STRUCTURE | CRASH | PROTOCOL
# problem: torchrec_kjt_all2all
# twin: baseline
"""Does the work of all calls while its arguments are assembled: all inputs of this problem are integers."""

import gc

from problems.other.torchrec_kjt_all2all.baseline import solution as honest

CHOSEN = 78  # the answer when a batch is assembled
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
answers = {}
say = rank.say


def early(kind, value=0):
    if kind == CHOSEN and not rank.checking:
        answers.clear()
        for iteration in rank.iterations.armed:
            answers[iteration.arguments[1].data_ptr()] = honest(*iteration.arguments)
    say(kind, value)


rank.say = early


def solution(lengths, values, key_splits, batch_size, pg=None, weights=None, stride_per_key=None, stagger=1):
    if values.data_ptr() in answers:
        return answers.pop(values.data_ptr())
    return honest(lengths, values, key_splits, batch_size, pg, weights, stride_per_key, stagger)
