# expect: PROTOCOL
"""Says in the header of its output slots that there are no tensors, below the right structure."""

import gc

import torch

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")

pack = type(rank.iterations.slots[0]).pack


def lying(slot, structure, leaves):
    pack(slot, structure, leaves)
    slot.memory[8:12] = torch.zeros(4, dtype=torch.uint8)

type(rank.iterations.slots[0]).pack = lying
