# expect: LATE_OUTPUT | WRONG_RESULT
# twin: honest_thread_pool
"""Returns at once; a thread fills the result in afterwards."""

import threading
import time

import torch
import torch.distributed as dist


def solution(tensor):
    total = torch.zeros_like(tensor)

    def work():
        time.sleep(0.02)
        total.copy_(tensor)
        dist.all_reduce(total)

    threading.Thread(target=work).start()
    return total
