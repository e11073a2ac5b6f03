# expect: PROTOCOL
"""Announces an answer of a gigabyte, as only a trusted rank may send, and sends JSON after it."""

import gc
import json

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


def solution(tensor):
    rank.say(73, 1 << 30)
    rank.sock.sendall(json.dumps({"intact": True, "findings": []}).encode() * 1000)
    return tensor.clone()
