# expect: TIMEOUT
"""Hangs with daemons beside it: when the referee is killed meanwhile, all of them must go."""

import os
import signal
import time

for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(60)
        os._exit(0)


def solution(tensor):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)
