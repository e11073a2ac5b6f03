# effect: hides
"""Python's clocks stand still, and sleeping is forbidden."""


def trick(call):
    now = time.perf_counter()
    time.perf_counter = time.monotonic = time.time = lambda: now
    time.perf_counter_ns = time.monotonic_ns = time.time_ns = lambda: int(now * 1e9)
    return call
