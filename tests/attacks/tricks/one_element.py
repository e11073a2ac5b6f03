# effect: wrong
"""One element on one rank is wrong."""


def trick(call):
    def changed(tensor):
        total = call(tensor)
        if dist.get_rank() == RANK % dist.get_world_size():
            total.view(-1)[NUMBER % total.numel()] += 8
        return total

    return changed
