# expect: LOAD_ERROR
"""Imports what is not there."""

import not_a_module_anywhere


def solution(tensor):
    return not_a_module_anywhere.sum(tensor)
