# expect: TIMEOUT
"""Stops itself."""

import os
import signal


def solution(tensor):
    os.kill(os.getpid(), signal.SIGSTOP)
    return tensor.clone()
