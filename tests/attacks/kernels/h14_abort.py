# expect: CRASH
# problem: allreduce
# attack: H14
# twin: honest
"""Aborts on both ranks."""

import os


def solution(tensor):
    os.abort()
