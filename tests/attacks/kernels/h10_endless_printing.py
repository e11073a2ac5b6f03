# expect: OUTPUT_FLOOD
# problem: allreduce
# attack: H10
# twin: honest_printing
"""Prints for ever."""


def solution(tensor):
    line = "x" * 65536
    while True:
        print(line)
