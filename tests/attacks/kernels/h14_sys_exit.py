# expect: CRASH
"""Leaves by sys.exit with status 0."""

import sys


def solution(tensor):
    sys.exit(0)
