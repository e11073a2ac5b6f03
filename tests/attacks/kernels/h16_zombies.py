# expect: PASS
"""Children that end and are never waited for."""

import os

for _ in range(100):
    if os.fork() == 0:
        os._exit(0)
