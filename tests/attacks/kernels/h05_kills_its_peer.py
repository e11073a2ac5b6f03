# expect: OUT_OF_MEMORY | CRASH
"""One rank kills the other and the launcher."""

import os
import signal

import torch.distributed as dist

try:
    open("@HOME_CANARY@").close()
    raise RuntimeError("no jail: not tried")
except OSError:
    pass


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
