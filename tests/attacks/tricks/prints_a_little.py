# effect: benign
"""Prints a line in its first calls."""


def trick(call):
    seen = [0]

    def changed(tensor):
        seen[0] += 1
        if seen[0] < EVERY:
            print("call", seen[0])
        return call(tensor)

    return changed
