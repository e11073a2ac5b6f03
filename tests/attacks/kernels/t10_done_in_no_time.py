# expect: PROTOCOL | WRONG_RESULT | IMPOSSIBLE_SPEED
"""Says DONE before GO, together with its last answer, so that a batch would take no time at all."""

import gc

LAST_ANSWERS, DONE = (68, 78), 69
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
say = rank.say


def early(kind, value=0):
    if rank.checking or kind not in (*LAST_ANSWERS, DONE):
        say(kind, value)
    elif kind in LAST_ANSWERS:
        say(kind)
        if kind == LAST_ANSWERS[-1]:
            say(DONE)

rank.say = early
