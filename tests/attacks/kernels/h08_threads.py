# expect: PASS
"""Starts threads until it may not any more, which must be soon."""

import os
import threading

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")
release = threading.Event()
threading.stack_size(1 << 16)
made = 0
while made < 2000:
    try:
        threading.Thread(target=release.wait, daemon=True).start()
    except RuntimeError:
        break
    made += 1
release.set()
if made == 2000:
    raise RuntimeError("the attack worked: 2000 threads")
