# expect: TIMEOUT
# problem: allreduce
# attack: H19
# twin: honest
"""Never finishes being imported."""

import time

while True:
    time.sleep(60)
