# expect: CRASH | OUT_OF_MEMORY
# problem: allreduce
# attack: H5
# twin: honest
"""SIGKILL for every process that it may signal: only its own world ends."""

import os
import signal

if os.readlink("/proc/self/ns/pid") == "@PID_NAMESPACE@":
    raise RuntimeError("no namespace of its own: not tried")


def solution(tensor):
    for pid in (@REFEREE_PID@, @BYSTANDER_PID@):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    os.kill(-1, signal.SIGKILL)
    os._exit(0)
