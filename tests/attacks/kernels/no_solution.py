# expect: LOAD_ERROR
"""The function has another name."""


def solve(tensor):
    return tensor
