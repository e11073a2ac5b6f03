# expect: PASS
# label: calls the baseline
"""Imports the baseline and calls it: right, and as fast as the baseline. No harm, and no gain."""

from problems.collective.allreduce.baseline import solution as baseline


def solution(tensor):
    return baseline(tensor)
