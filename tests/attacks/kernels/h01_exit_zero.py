# expect: CRASH
"""Leaves with status 0 as if all had gone well."""

import os


def solution(tensor):
    os._exit(0)
