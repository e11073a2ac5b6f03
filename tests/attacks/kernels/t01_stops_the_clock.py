# expect: PASS
# at_least_us: 3500
# change: total = tensor.clone() -> nap(0.004); total = tensor.clone()
"""Patches every clock of its interpreter and modules of the judge: the referee's is elsewhere, and sees the sleep."""

import sys
import time

import torch

nap = time.sleep
for name in ("perf_counter", "monotonic", "time", "process_time"):
    setattr(time, name, lambda: 0.0)
    setattr(time, name + "_ns", lambda: 0)
for name in ("Event", "synchronize"):
    setattr(torch.cuda, name, lambda *_, **__: None)
sys.modules.update(dict.fromkeys(("timeit", "sandbox.timing.rounds", "sandbox.referee.evaluation"), sys))
