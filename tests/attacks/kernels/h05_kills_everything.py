# expect: CRASH | OUT_OF_MEMORY
"""SIGKILL for every process that it may signal: only its own world ends."""

import os
import signal

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")


def solution(tensor):
    for pid in (@REFEREE_PID@, @BYSTANDER_PID@):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    os.kill(-1, signal.SIGKILL)
    os._exit(0)
