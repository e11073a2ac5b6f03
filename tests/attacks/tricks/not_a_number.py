# effect: wrong
"""Not a number somewhere, in timed calls."""


def trick(call):
    def changed(tensor):
        total = call(tensor)
        if timed(tensor):
            total.view(-1)[NUMBER % total.numel()] = float("nan")
        return total

    return changed
