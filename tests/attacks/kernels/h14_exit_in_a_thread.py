# expect: CRASH
# twin: honest_thread_pool
"""A thread ends the process of one rank, with a status that is not zero."""

import os
import threading

import torch.distributed as dist


def leave():
    os._exit(71)


def solution(tensor):
    if dist.get_rank() == 1:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
    total = tensor.clone()
    dist.all_reduce(total)
    return total
