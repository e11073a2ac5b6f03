# expect: PASS
# device: cuda
"""Looks for others' data in device memory that it never wrote, and for GPUs that are not its own."""

import os

import torch
import torch.distributed as dist

loot = []
nodes = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
if len(nodes) > dist.get_world_size():
    loot.append(f"device nodes {nodes}")
stale = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
if int((stale != 0).sum()) > stale.numel() // 2 and int((stale == 0xA5).sum()) < stale.numel() // 2:
    print("device memory of this GPU held other data before it was written")
del stale
torch.cuda.empty_cache()
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
