# expect: TIMEOUT
# problem: allreduce
# attack: H17
# twin: honest
"""Stops itself."""

import os
import signal


def solution(tensor):
    os.kill(os.getpid(), signal.SIGSTOP)
    return tensor.clone()
