"""Every bit of a seed affects the numbers drawn from it."""

import contextlib
import hashlib
import os
import socket
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from problems.setting import RankSetting
from sandbox.memory.slots import POISON
from sandbox.protocol.frames import GatePage
from sandbox.protocol.messages import MakeArenas, MapGate, Reveal, SlotLayout
from sandbox.rank.devices.device import Device
from sandbox.rank.problem_code import seeded
from sandbox.rank.trusted import TrustedRank
from sandbox.rank.trusted_arenas import TrustedArenas
from sandbox.worlds.rank_wire import RankWire

CPU = torch.device("cpu")


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 33, 47, 62])
def test_one_bit_of_seed_changes_all_numbers(bit: int) -> None:
    seed = 0x1234_5678_9ABC_DEF0
    one, other = (torch.randn(64, generator=seeded(each, CPU)) for each in (seed, seed ^ (1 << bit)))
    assert int((one == other).sum()) < 4


def test_draws_are_mersenne_twister_of_hashed_state() -> None:
    # This does not use torch's layout of the state, so it fails when that layout changes.
    key = np.frombuffer(hashlib.shake_256((5).to_bytes(8, "little")).digest(4 * 624), dtype=np.uint32)
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
    expected = twister.random_raw(2000) % (1 << 20)
    drawn = torch.empty(2000, dtype=torch.int64).random_(0, 1 << 20, generator=seeded(5, CPU))
    assert np.array_equal(drawn.numpy(), expected)


def test_normal_numbers_of_16_bits_are_rounded() -> None:
    setting = RankSetting(0, 1, SimpleNamespace(), torch.bfloat16, CPU, own=seeded(1, CPU))
    assert torch.equal(setting.randn(1000), torch.randn(1000, generator=seeded(1, CPU)).bfloat16())


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


def test_only_present_slots_are_poisoned_again() -> None:
    arenas = TrustedArenas(Device())
    for fd in arenas.make(MakeArenas(LAYOUT, own=True, side=0, shared=False)):
        os.close(fd)
    ends = arenas.sides[0].outputs[:: LAYOUT.out_bytes]
    assert arenas.begin(LAYOUT.slots) == LAYOUT.slots
    ends.fill_(0)
    assert arenas.begin(1) == LAYOUT.slots
    arenas.poison(0)  # nothing did since all of these outputs were due
    assert arenas.touched([0]) == []
    ends.fill_(0)  # also in a slot without an iteration
    assert arenas.touched([0], 1) == [0]
    arenas.poison(0)
    assert (arenas.touched([0], arenas.begin(1)), arenas.touched([0])) == ([], [0])
    assert arenas.touched([0], arenas.begin(LAYOUT.slots)) == [0]
    arenas.clear()


@pytest.mark.parametrize("late", [False, True])
def test_output_that_changes_after_its_batch_is_late(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Device.output_arena
    monkeypatch.setattr(Device, "output_arena", lambda device, size: arena(device, size + 8192))  # GPUs round up
    wire, ends = RankWire.connect(0, True)
    with contextlib.closing(wire), socket.socket(fileno=ends.sock) as sock:
        trusted = TrustedRank(0, 1, sock, ends.report, tmp_path, Device())
        arenas = trusted.arenas
        for fd in arenas.make(MakeArenas(LAYOUT, own=True, side=0, shared=False)):
            os.close(fd)
        outputs = arenas.sides[0].outputs
        arenas.begin(2)
        outputs.fill_(1)
        page = GatePage(1)
        trusted.map_gate(MapGate(), [os.dup(page.fd)])
        waiting = threading.Thread(target=trusted.reveal, args=(Reveal(0, 0, 2, epoch=page.shut()), []))
        waiting.start()
        page.open()
        assert page.wait(60)
        waiting.join()
        if late:
            outputs[LAYOUT.out_bytes : 2 * LAYOUT.out_bytes] += 1
        arenas.take(0, 0, 2)
        outputs.fill_(POISON)
        assert arenas.touched([0]) == [0] * late
        arenas.clear()
        page.close()
    os.close(ends.pipe)
    os.close(ends.report)
