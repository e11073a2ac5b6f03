# expect: PASS | WRONG_RESULT
# at_least_us: 2800
"""Works between its own continuing and the GO: a thread computes as soon as the inputs are there. The clock runs by then."""

import gc
import threading
import time

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
ready, lock = {}, threading.Lock()


def early():
    while True:
        for (tensor,), _, _, _ in rank.iterations.armed[rank.batch] if rank.iterations else ():
            with lock:
                if tensor.data_ptr() not in ready and bool(torch.isfinite(tensor.float()).all()):
                    ready[tensor.data_ptr()] = tensor.float().sum()
        time.sleep(0.0001)


if dist.get_rank() == 0:
    threading.Thread(target=early, daemon=True).start()


def solution(tensor):
    time.sleep(0.003)
    with lock:
        ready.pop(tensor.data_ptr(), None)
    total = tensor.clone()
    dist.all_reduce(total)
    return total
