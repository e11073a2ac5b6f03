# expect: PROTOCOL | WRONG_STRUCTURE | WRONG_RESULT
"""Fills the header of its output slots with sizes that reach far beyond them."""

import gc

import torch

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")

pack = type(rank.iterations.slots[0]).pack


def lying(slot, structure, leaves):
    pack(slot, structure, leaves)
    slot.memory[16:4096] = torch.randint(0, 256, (4080,), dtype=torch.uint8)

type(rank.iterations.slots[0]).pack = lying
