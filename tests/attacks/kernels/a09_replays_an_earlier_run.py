# expect: PASS
# runs: 2
"""Leaves its answers wherever it can write, and looks for those of an earlier run there: nothing outlives a world."""

import os
from pathlib import Path

import torch.distributed as dist

FOLDERS = ["/tmp", "/dev/shm", "/var/tmp", os.environ.get("PKB_KERNEL_CACHE", "/tmp"), os.path.expanduser("~")]
FOLDERS += [str(path) for path in Path("/tmp").glob("pkb-*") if path.is_dir()]
NAME = "pkb-attack-answers.so"
loot = []
dist.barrier()  # both ranks look before one writes
for folder in FOLDERS:
    if os.path.exists(f"{folder}/{NAME}"):
        loot.append(folder)
dist.barrier()
for folder in FOLDERS:
    try:
        Path(folder, NAME).write_text("answers")
    except OSError:
        pass
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
