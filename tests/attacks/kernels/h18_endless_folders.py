# expect: OUT_OF_MEMORY
# twin: honest_cpp
"""Makes folders without end with the names of those where compiled kernels are collected."""

import os
import tempfile

import torch.distributed as dist

if os.access("@HOME_CANARY@", os.R_OK):
    raise RuntimeError("no jail: not tried")
if dist.get_rank() == 0:
    for number in range(1 << 40):
        os.mkdir(f"{tempfile.gettempdir()}/pkb-kernels-{number}")
dist.barrier()
