# effect: benign
"""Collects garbage now and then."""


def trick(call):
    def changed(tensor):
        gc.collect(0)
        return call(tensor)

    return changed
