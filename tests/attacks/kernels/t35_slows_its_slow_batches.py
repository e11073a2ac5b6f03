# expect: PASS
# not_faster: yes
"""Makes its slowest batches slower still: up to five are then set aside with their pairs."""

import gc
import time
from statistics import quantiles

MOST = 5
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
timed, seconds, slowed = rank.timed_batch, [], 0


def timed_batch():
    global slowed
    began = time.perf_counter()
    timed()
    took = time.perf_counter() - began
    seconds.append(took / max(1, rank.batch.stop - rank.batch.start))
    if not rank.noop and slowed < MOST and len(seconds) > 8 and seconds[-1] > quantiles(seconds, n=8)[-1]:
        slowed += 1
        time.sleep(2 * took)


rank.timed_batch = timed_batch
