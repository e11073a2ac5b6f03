# effect: hides
"""Slow while it is getting warm, so that fewer calls are timed."""


def trick(call):
    seen = [0]

    def changed(tensor):
        seen[0] += 1
        if seen[0] < NUMBER % 40:
            rest(0.01)
        return call(tensor)

    return changed
