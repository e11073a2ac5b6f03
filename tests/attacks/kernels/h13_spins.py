# expect: TIMEOUT
"""Spins for a flag that nobody sets."""


def solution(tensor):
    while tensor is not None:
        pass
