# effect: hides
"""Kills one of its ranks, as somebody outside might have."""


def trick(call):
    state = {"calls": 0}

    def changed(tensor):
        state["calls"] += 1
        if state["calls"] == 4 * EVERY and dist.get_rank() == RANK % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(tensor)

    return changed
