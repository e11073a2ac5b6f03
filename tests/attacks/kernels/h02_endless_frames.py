# expect: PROTOCOL
"""Sends well-formed frames without end."""

import gc

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def solution(tensor):
    while True:
        rank.say(70)
