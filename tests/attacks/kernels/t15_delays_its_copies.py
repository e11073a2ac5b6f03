# expect: PASS
# at_least_us: 2000
# change: total = tensor.clone() -> time.sleep(0.003); total = tensor.clone()
"""Says that it reuses memory, so that it gets no-op batches, and delays its copies there: what they take is taken off, it hopes."""

import gc
import time

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
put = rank.output_copies.put
type(rank.output_copies).report = 1


def slow(slot, result):
    if rank.noop:
        time.sleep(0.002)
    put(slot, result)


rank.output_copies.put = slow
