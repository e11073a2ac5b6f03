# expect: LOAD_ERROR
"""Takes two arguments where the problem gives one."""


def solution(a, b):
    return a
