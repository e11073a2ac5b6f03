"""Arenas of a closed problem are freed, and the next problem makes new ones."""

import os
import weakref
from pathlib import Path

from sandbox.protocol.messages import MakeArenas, SlotLayout
from sandbox.rank.devices.device import Device
from sandbox.rank.trusted_arenas import TrustedArenas

LAYOUT = SlotLayout(1 << 16, 1 << 16, 16, 2, True)


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{name}").exists()}


def test_cleared_arenas_leave_nothing_behind() -> None:
    arenas = TrustedArenas(Device())
    before = descriptors()
    for _ in range(2):
        for side in (0, 1):
            for fd in arenas.make(MakeArenas(LAYOUT, own=side == 0, side=side, shared=False)):
                os.close(fd)
        arenas.take(0, 0, 1)
        gone = [weakref.ref(tensor) for side in arenas.sides.values() for tensor in (side.inputs, side.outputs)]
        gone += [weakref.ref(arenas.own), weakref.ref(arenas.sides[0].due)]
        arenas.clear()
        assert [tensor() for tensor in gone] == [None] * len(gone)
        assert not arenas.sides
        assert descriptors() == before
