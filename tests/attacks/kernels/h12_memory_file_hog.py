# expect: OUT_OF_MEMORY
"""Fills memory files that no process maps."""

import os
import time

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")
kept = []


def solution(tensor):
    while len(kept) < 64:
        kept.append(os.memfd_create("scratch"))
        os.posix_fallocate(kept[-1], 0, 128 << 20)
        time.sleep(0.01)
    return tensor.clone()
