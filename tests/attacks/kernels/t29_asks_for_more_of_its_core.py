# expect: PASS
"""Asks Linux for the highest clock, a short time slice, and a core whose other thread rests. All of it must be refused."""

import ctypes
import platform

import torch.distributed as dist

SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}[platform.machine()]
PR_SCHED_CORE, CREATE = 62, 1
EPERM, CLAMP_BOTH, NORMAL = 1, 0x60, 0
libc = ctypes.CDLL(None, use_errno=True)


def is_refused(result):
    return result == -1 and ctypes.get_errno() == EPERM


def attributes(flags=0, runtime=0):
    """struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period, least and most utilisation."""
    words = (56, NORMAL, flags, flags >> 32, 0, 0, runtime, runtime >> 32, 0, 0, 0, 0, 1024, 1024)
    return (ctypes.c_uint32 * len(words))(*words)


wanted = [attributes(CLAMP_BOTH), attributes(runtime=100_000)]
refused = [is_refused(libc.syscall(SCHED_SETATTR, 0, each, 0)) for each in wanted]
refused.append(is_refused(libc.prctl(PR_SCHED_CORE, CREATE, 0, 0, 0)))


def solution(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total if all(refused) else total + 1
