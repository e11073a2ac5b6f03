# expect: CRASH
"""Leaves a pickle that runs a command wherever the referee might read: nothing there is ever unpickled."""

import gc
import os
import pickle

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")


class Gadget:
    def __reduce__(self):
        return os.system, ("touch /tmp/pkb-attack-gadget /dev/shm/pkb-attack-gadget",)


def solution(tensor):
    data = pickle.dumps(Gadget())
    rank.outputs[: len(data)] = __import__("torch").frombuffer(bytearray(data), dtype=rank.outputs.dtype)
    for name in ("/tmp/rank_0.pt", "/tmp/result.pkl"):
        with open(name, "wb") as file:
            file.write(data)
    print(data)
    raise RuntimeError(data.decode("latin-1"))
