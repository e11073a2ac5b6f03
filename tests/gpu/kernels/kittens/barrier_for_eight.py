"""Asks for a barrier of eight GPUs."""

from utils.parallelkittens_runtime import get_or_create_barrier


def solution(tensor):
    return get_or_create_barrier(None).data_
