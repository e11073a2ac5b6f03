# expect: PASS | TIMEOUT | BASELINE_DISTURBED | LATE_OUTPUT
"""Starts processes until it may not any more, which must be soon; none of them is left. On a busy machine that takes until the deadline."""

import os

import torch.distributed as dist

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")
made = 0
while made < 2000 and dist.get_rank() == 0:
    try:
        os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    except OSError:
        break
    made += 1
if made == 2000:
    raise RuntimeError("the attack worked: 2000 processes")
