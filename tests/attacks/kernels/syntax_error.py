# expect: COMPILE_ERROR
"""A parenthesis is missing."""

def solution(tensor:
    return tensor
