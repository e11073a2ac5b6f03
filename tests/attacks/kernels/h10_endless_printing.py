# expect: OUTPUT_FLOOD
# twin: honest_printing
"""Prints for ever."""


def solution(tensor):
    line = "x" * 65536
    while True:
        print(line)
