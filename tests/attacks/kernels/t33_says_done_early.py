# expect: LATE_OUTPUT | WRONG_RESULT | PROTOCOL
# problem: gemm_allreduce
# preset: paper
# device: cuda
# twin: baseline
"""Marks the end of a batch, and says DONE, LEAD_S before its streams are done."""

import gc
import time

import torch.distributed as dist

LEAD_S = 0.0001
HONEST = 4
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
synchronize = rank.device.synchronize
known = {}
started = 0.0


def synchronize_early():
    calls = rank.batch.stop - rank.batch.start
    if rank.checking or rank.noop or not calls or rank.begun[0] != calls:
        synchronize()
        return
    begun = time.perf_counter() if rank.epoch else started
    found = known.setdefault((calls, rank.epoch > 0), [])
    if len(found) < HONEST:
        synchronize()
        found.append(time.perf_counter() - begun)
        return
    until = begun + sorted(found)[1] - LEAD_S
    while time.perf_counter() < until:
        pass


rank.device.synchronize = synchronize_early


def solution(A_local, B_local):
    global started
    calls = rank.batch.stop - rank.batch.start
    if rank.begun[0] == 1:
        started = time.perf_counter()
    if rank.epoch and not rank.noop and len(known.get((calls, True), ())) == HONEST:
        lead = max(1, int(LEAD_S * calls / sorted(known[calls, True])[1]))
        if rank.begun[0] == max(calls - lead, 1):
            rank.gate.mark(rank.epoch)
    product = A_local @ B_local
    dist.all_reduce(product)
    return product
