# effect: wrong
"""Rounds its result to a few bits."""


def trick(call):
    def changed(tensor):
        total = call(tensor)
        step = total.abs().max().float() / LEVELS
        return ((total.float() / step).round() * step).to(total.dtype)

    return changed
