# expect: LOAD_ERROR
# problem: allreduce
# attack: -
"""The function has another name."""


def solve(tensor):
    return tensor
