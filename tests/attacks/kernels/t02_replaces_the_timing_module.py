# expect: PASS
# at_least_us: 3500
# change: total = tensor.clone() -> nap(0.004); total = tensor.clone()
"""Puts modules of its own where a harness would import its timing from."""

import sys
import time
import types

nap = time.sleep
fake = types.ModuleType("fake")
fake.perf_counter_ns = fake.perf_counter = fake.monotonic = lambda: 0
for name in (
    "time",
    "timeit",
    "utils.performance",
    "sandbox.timing.rounds",
    "sandbox.timing.interval",
    "sandbox.referee.evaluation",
    "sandbox.rank.outputs.checks",
):
    sys.modules[name] = fake
