"""Outputs that a trusted rank reads at the end of a batch, and compares when it takes them."""

import os

import pytest

from sandbox.memory.host import up
from sandbox.memory.slots import header_bytes
from sandbox.protocol.messages import MakeArenas, Reveal, SlotLayout
from sandbox.rank.devices.device import Device
from sandbox.rank.trusted import TrustedRank
from sandbox.rank.trusted_arenas import TrustedArenas

SLOTS, KERNEL = 4, 0


class Reading(TrustedRank):
    """A trusted rank in this process, whose gate is open."""

    def __init__(self) -> None:
        self.rank, self.device = 0, Device()
        self.arenas = TrustedArenas(self.device)
        size = up(header_bytes(1) + 64)
        for fd in self.arenas.make(MakeArenas(SlotLayout(64, size, 1, SLOTS, True), own=True, side=KERNEL)):
            os.close(fd)
        self.gate = memoryview(bytearray(4096)).cast("I")
        self.gate[0] = 1
        self.reply = lambda order, contents, fds=(): None  # type: ignore[method-assign]

    def batch(self, fill: int, reads: bool) -> None:
        """Reveals a batch and writes outputs of one byte; reads them at the end if `reads`."""
        self.arenas.sides[KERNEL].outputs.fill_(fill)
        self.reveal(Reveal(KERNEL, 0, SLOTS, False, None, int(reads)), [])


@pytest.fixture
def rank() -> Reading:
    return Reading()


def test_a_change_after_the_end_is_late(rank: Reading) -> None:
    rank.batch(1, reads=True)
    rank.arenas.take(KERNEL, 0, SLOTS)
    assert not rank.arenas.late
    rank.batch(2, reads=True)
    rank.arenas.sides[KERNEL].outputs.fill_(3)
    rank.arenas.take(KERNEL, 0, SLOTS)
    assert rank.arenas.late == {KERNEL}


def test_a_later_batch_is_compared_with_nothing(rank: Reading) -> None:
    rank.batch(1, reads=True)  # a no-op batch, whose outputs nobody takes
    rank.batch(2, reads=False)  # a probe
    rank.arenas.take(KERNEL, 0, SLOTS)
    assert not rank.arenas.late
