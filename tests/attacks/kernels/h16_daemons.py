# expect: PASS
"""Leaves daemons: own sessions, all descriptors closed, parents gone."""

import os
import signal
import time

for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 4096)
            for number in range(1, 31):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            while True:
                time.sleep(60)
        os._exit(0)
