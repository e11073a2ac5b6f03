# expect: COMPILE_ERROR
# problem: allreduce
# attack: -
"""A parenthesis is missing."""

def solution(tensor:
    return tensor
