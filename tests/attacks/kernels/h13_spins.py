# expect: TIMEOUT
# problem: allreduce
# attack: H13
# twin: honest
"""Spins for a flag that nobody sets."""


def solution(tensor):
    while tensor is not None:
        pass
