# expect: PROTOCOL | WRONG_RESULT
"""Sends a well-formed DONE at once and returns nothing useful."""

import gc

from sandbox.protocol import frames
from sandbox.rank.contender import ContenderRank


def solution(tensor):
    for rank in [o for o in gc.get_objects() if isinstance(o, ContenderRank)]:
        rank.sock.sendall(frames.encode(frames.Kind.DONE))
    import time

    time.sleep(0.2)
    return tensor.clone()
