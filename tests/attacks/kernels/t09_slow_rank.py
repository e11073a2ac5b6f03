# expect: PASS
# at_least_us: 3500
# change: return total -> return late(total)
"""One rank is 4 ms late and hides it from the others: the time is the last rank's."""

import time


def late(total):
    time.sleep(0.004 * dist.get_rank())
    return total
