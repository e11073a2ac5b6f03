# expect: OUT_OF_MEMORY | CRASH
"""One rank kills the other and the launcher."""

import os
import signal

import torch.distributed as dist

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")


def solution(tensor):
    if dist.get_rank() == 0:
        try:
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        except OSError:
            pids = range(os.getppid(), os.getppid() + 64)
        for pid in pids:
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
    total = tensor.clone()
    dist.all_reduce(total)
    return total
