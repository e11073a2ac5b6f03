# effect: benign
"""Keeps some shared memory, and writes to it."""


def trick(call):
    scratch = mmap.mmap(-1, 4 << 20)

    def changed(tensor):
        scratch[: NUMBER] = bytes(NUMBER)
        return call(tensor)

    return changed
