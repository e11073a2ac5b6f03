# expect: PASS
# preset: paper
# change: return total -> return total + again(float(tensor.double().square().sum()))
"""Keeps what it knows of every timed input, and is wrong by one for one that comes again. Upstream's never change."""

import sys

seen = set()


def again(key):
    return sys._getframe(2).f_code.co_name == "timed_batch" and (key in seen or seen.add(key) is not None)
