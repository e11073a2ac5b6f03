"""Layout of a rank's part of the symmetric memory: signal pads, mail, then the heap. The C headers repeat it.

A team is a set of ranks of a world of at most 8, so its members' bit mask names it: every team has a pad and
a mail box at a place that all ranks can compute without communication.
"""

import ctypes
from collections.abc import Sequence

MAX_WORLD = 8
TEAMS = 1 << MAX_WORLD
SLOTS = 1024
USER_SLOTS = 1008
"""Slots 0..1007 are the kernel's; the rest serve `symm.barrier` and allocation."""
BARRIER_SLOT = 1023
ALLOCATION_SLOT = 1022
PAD_BYTES = SLOTS * MAX_WORLD * 4
MAIL_BYTES = 256
PADS_BYTES = TEAMS * PAD_BYTES
HEAD_BYTES = PADS_BYTES + 2 * TEAMS * MAIL_BYTES
ALIGN = 256
EPOCH_MASK = 0xFFFF_FFFF


class Px(ctypes.Structure):
    """The struct `Px` of the C headers: heap and signal pad addresses of every member, as this process maps them."""

    _fields_ = (
        ("buf", ctypes.c_uint64 * MAX_WORLD),
        ("sig", ctypes.c_uint64 * MAX_WORLD),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
    )
    ranks: tuple[int, ...] = ()
    """Global ranks of the members. Only Python has them."""


class PxNumbers(ctypes.Structure):
    """The struct `PxNumbers` of px.cuh: up to 64 numbers that a kernel takes by value."""

    _fields_ = (("at", ctypes.c_int64 * 64),)


def make_px(heaps: Sequence[int], pads: Sequence[int], ranks: tuple[int, ...], me: int) -> Px:
    """A `Px` for the member at position `me`; `heaps` and `pads` hold one address per member."""
    px = Px()
    for index, (heap, pad) in enumerate(zip(heaps, pads, strict=True)):
        px.buf[index] = heap
        px.sig[index] = pad
    px.rank = me
    px.world = len(ranks)
    px.ranks = ranks
    return px


def team_mask(ranks: Sequence[int]) -> int:
    """The bit mask that names a team. It is also the index of the team's pad and mail box."""
    mask = 0
    for rank in ranks:
        mask |= 1 << rank
    return mask


def is_before(value: int, target: int) -> bool:
    """Whether epoch `value` is before `target`, by signed 32-bit difference. Epochs wrap, and are never reset."""
    return ((value - target) & EPOCH_MASK) >= 0x8000_0000
