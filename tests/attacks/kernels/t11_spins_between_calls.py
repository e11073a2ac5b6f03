# expect: PASS
"""A daemon burns CPU to slow the baseline down: it is frozen with its world, so it gains nothing."""

import os

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            pass
    os._exit(0)
