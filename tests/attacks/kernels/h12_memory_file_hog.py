# expect: OUT_OF_MEMORY
# problem: allreduce
# attack: H12
# twin: honest
"""Fills memory files that no process maps."""

import os
import time

if os.readlink("/proc/self/ns/pid") == "@PID_NAMESPACE@":
    raise RuntimeError("no namespace of its own: not tried")
kept = []


def solution(tensor):
    while len(kept) < 64:
        kept.append(os.memfd_create("scratch"))
        os.posix_fallocate(kept[-1], 0, 128 << 20)
        time.sleep(0.01)
    return tensor.clone()
