# expect: TIMEOUT
"""Ignores every signal that can be ignored, in a session of its own, and never returns."""

import os
import signal
import time


def solution(tensor):
    for number in range(1, 31):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    if os.fork() == 0:
        os.setsid()
    while True:
        time.sleep(60)
