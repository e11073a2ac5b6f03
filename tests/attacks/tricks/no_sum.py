# effect: wrong
"""Leaves the other ranks' part out on one rank."""


def trick(call):
    def changed(tensor):
        total = call(tensor)
        return tensor.clone() * 0.5 if timed(tensor) and dist.get_rank() == RANK % dist.get_world_size() else total

    return changed
