# expect: BASELINE_DISTURBED | PASS
# not_faster: yes
# preset: production
# device: cuda
# twin: honest_async
"""Leaves copies to its peer in a copy engine after every batch: they take up NVLink, but no multiprocessor."""

import gc

import torch
import torch.distributed as dist

from sandbox.kit import symm

COPIES, BYTES = 12, 1 << 30
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
symm.reserve(BYTES + (64 << 20))
place = symm.empty((BYTES,), torch.uint8, "place")
peer = symm.peers(place)[(dist.get_rank() + 1) % dist.get_world_size()]
source = torch.zeros(BYTES, dtype=torch.uint8, device="cuda")
side = torch.cuda.Stream()


def synchronize():
    calls = rank.batch.stop - rank.batch.start
    torch.cuda.current_stream().synchronize()
    if rank.checking or rank.noop or not calls or rank.begun[0] != calls:
        side.synchronize()
        return
    with torch.cuda.stream(side):
        for _ in range(COPIES):
            peer.copy_(source)


rank.device.synchronize = synchronize
