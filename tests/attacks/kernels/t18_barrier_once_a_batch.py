# expect: WRONG_RESULT
# calls: 3
# twin: honest_barrier_in_every_call
"""Ranks exchange the inputs of a batch in its first call. A later call only corrects inputs that were replaced meanwhile."""

import gc
import time

import torch

from sandbox.kit import symm

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
places = {}
batches = 0
MOST = 256
"""Most calls of a batch, on GPUs."""


def solution(tensor):
    global batches
    pointer = tensor.data_ptr()
    shown = symm.empty((MOST, *tensor.shape), tensor.dtype, "shown")
    corrected = symm.empty((MOST,), torch.int64, "corrected")
    if pointer not in places:
        places.clear()
        batches += 1
        batch = [it.given["tensor"] for it in rank.iterations.armed[rank.batch]]
        ahead = batch if not rank.checking and any(t.data_ptr() == pointer for t in batch) else [tensor]
        places.update({t.data_ptr(): n for n, t in enumerate(ahead)})
        symm.barrier()
        for n, each in enumerate(ahead):
            shown[n] = each
        symm.barrier()
    n = places.pop(pointer)
    if not torch.equal(shown[n], tensor):
        shown[n] = tensor
        corrected[n] = batches
        until = time.monotonic() + 0.02  # time enough for the others, if theirs were replaced, too
        while time.monotonic() < until and any(int(peer[n]) != batches for peer in symm.peers(corrected)):
            time.sleep(0)
    return torch.stack([peer[n] for peer in symm.peers(shown)]).float().sum(0).to(tensor.dtype)
