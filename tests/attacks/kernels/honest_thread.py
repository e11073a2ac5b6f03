"""Uses a thread, and joins it."""

import threading

import torch.distributed as dist


def solution(tensor):
    total = tensor.clone()
    thread = threading.Thread(target=dist.all_reduce, args=(total,))
    thread.start()
    thread.join()
    return total
