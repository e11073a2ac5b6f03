# expect: LOAD_ERROR
# problem: allreduce
# attack: -
"""Takes two arguments where the problem gives one."""


def solution(a, b):
    return a
