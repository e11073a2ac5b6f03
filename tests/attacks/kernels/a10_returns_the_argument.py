# expect: WRONG_STRUCTURE
# problem: allreduce
# attack: A10
# twin: honest
"""Hands the argument itself back."""


def solution(tensor):
    return tensor
