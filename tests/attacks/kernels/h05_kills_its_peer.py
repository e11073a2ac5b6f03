# expect: OUT_OF_MEMORY | CRASH
# problem: allreduce
# attack: H5
# twin: honest
"""One rank kills the other and the launcher."""

import os
import signal

import torch.distributed as dist

if os.readlink("/proc/self/ns/pid") == "@PID_NAMESPACE@":
    raise RuntimeError("no namespace of its own: not tried")


def solution(tensor):
    if dist.get_rank() == 0:
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
    total = tensor.clone()
    dist.all_reduce(total)
    return total
