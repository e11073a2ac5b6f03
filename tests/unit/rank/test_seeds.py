"""Every bit of a seed affects the numbers drawn from it."""

import hashlib
import itertools
import os
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call, patch

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from opened_problems import PROBLEMS, opened

from problems.setting import RankSetting
from sandbox.memory import slots
from sandbox.protocol.messages import Draw, DrawAgain, MakeArenas, SlotLayout
from sandbox.rank.devices.device import Device
from sandbox.rank.problem_code import ProblemCode, seeded
from sandbox.rank.trusted import TrustedRank
from sandbox.rank.trusted_arenas import READ_BYTES, TrustedArenas

CPU = torch.device("cpu")


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 33, 47, 62])
def test_one_bit_of_seed_changes_all_numbers(bit: int) -> None:
    seed = 0x1234_5678_9ABC_DEF0
    one, other = (torch.randn(64, generator=seeded(each, CPU)) for each in (seed, seed ^ (1 << bit)))
    assert int((one == other).sum()) < 4


def test_draws_are_mersenne_twister_of_hashed_state(monkeypatch: pytest.MonkeyPatch) -> None:
    # This does not use torch's layout of the state, so it fails when that layout changes.
    key = np.frombuffer(hashlib.shake_256((5).to_bytes(8, "little")).digest(4 * 624), dtype=np.uint32)
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
    expected = twister.random_raw(2000) % (1 << 20)
    drawn = torch.empty(2000, dtype=torch.int64).random_(0, 1 << 20, generator=seeded(5, CPU))
    assert np.array_equal(drawn.numpy(), expected)
    monkeypatch.setattr(torch, "Generator", Mock())
    assert seeded(5, torch.device("cuda")).manual_seed.mock_calls == [call(5)]


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
        arenas.tables[0] = []
        gone = [weakref.ref(tensor) for side in arenas.sides.values() for tensor in (side.inputs, side.outputs)]
        gone += [weakref.ref(arenas.own), weakref.ref(arenas.sides[0].due)]
        arenas.clear()
        assert [tensor() for tensor in gone] == [None] * len(gone)
        assert not arenas.sides
        assert not arenas.tables
        assert descriptors() == before


def test_each_arena_is_freed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device, told = Device(), []
    for name in ("free_cache", "synchronize"):
        monkeypatch.setattr(device, name, lambda name=name: told.append(name))
    monkeypatch.setattr(device, "release", lambda arena: told.append(id(arena)))
    arenas, made = TrustedArenas(device), []
    for side, writable in enumerate((False, False, True)):
        before = id(arenas.own)
        made += arenas.make(MakeArenas(LAYOUT, own=side == 0, side=side, shared=True), writable)
        assert told == ["free_cache", *([before] if side == 0 else []), "synchronize"]
        told.clear()
        drawn = arenas.begin(1)
    sides, own = [*arenas.sides.values()], arenas.own
    assert [side.inputs is own for side in sides] == [True, True, False]
    assert (drawn, arenas.drawn) == (1, 1)
    arenas.clear()
    freed = [own, sides[2].inputs, *(side.outputs for side in sides)]
    assert (told[0], sorted(told[1:])) == ("synchronize", sorted(map(id, freed)))
    made += arenas.make(MakeArenas(replace(LAYOUT, sealed=False), own=True, side=0))
    assert arenas.own.numel() == LAYOUT.in_bytes * LAYOUT.slots
    for fd in made:
        os.close(fd)


@pytest.fixture
def two_sides() -> Iterator[TrustedArenas]:
    """Arenas of a side that shares its inputs, and of one that does not."""
    arenas = TrustedArenas(Device())
    for side in (0, 1):
        for fd in arenas.make(MakeArenas(LAYOUT, own=side == 0, side=side, shared=side == 0)):
            os.close(fd)
    yield arenas
    arenas.clear()


def test_outputs_stay_as_they_were_taken(two_sides: TrustedArenas) -> None:
    arenas, side = two_sides, two_sides.sides[1]
    for slot in (0, 1):
        side.outputs.fill_(slot)
        arenas.take(1, slot, 1)
        assert (side.due is side.taken, arenas.sides[0].takes) == (True, False)
    side.outputs.fill_(9)
    due = [arenas.slot_of(side.due, slot) for slot in (0, 1)]
    assert [(part.numel(), part.unique().tolist()) for part in due] == [(LAYOUT.out_bytes, [slot]) for slot in (0, 1)]
    arenas.begin(1)
    assert side.due is side.outputs  # of other iterations
    for fd in arenas.make(MakeArenas(LAYOUT, own=True, side=1)):
        os.close(fd)
    assert list(arenas.sides) == [1]


def test_sides_get_inputs_unless_they_are_withheld(two_sides: TrustedArenas) -> None:
    tensors = {"early": torch.ones(3), "late": torch.ones(5)}
    table, _ = slots.lay_out(tensors)
    two_sides.fill(1, table, tensors, (0, 1), {"late"})
    begins = LAYOUT.in_bytes + table[1].offset
    found = [slots.read_inputs(side.inputs, LAYOUT.in_bytes, table) for side in two_sides.sides.values()]
    assert [[float(tensor.sum()) for tensor in each.values()] for each in (two_sides.inputs_of(1), *found)] == [
        [3.0, 5.0],
        [3.0, 5.0],
        [3.0, 0.0],
    ]
    assert [side.withheld for side in two_sides.sides.values()] == [{1: [(begins, begins + 20)]}] * 2
    two_sides.begin(1)
    assert not any(side.withheld for side in two_sides.sides.values())


def test_reading_at_end_looks_anywhere_in_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    device, begins = Device(), set()
    monkeypatch.setattr(device, "reader", lambda rows: begins.add((rows.shape[1], rows.storage_offset())) or rows.clone)
    arenas = TrustedArenas(device)
    for fd in arenas.make(MakeArenas(LAYOUT, own=True, side=0)):
        os.close(fd)
    header = slots.header_bytes(LAYOUT.room)
    for arenas.filled, width in ((64, 64), (READ_BYTES + 32, READ_BYTES)):
        begins.clear()
        for _ in range(2000):
            arenas.reader(0, 1, 1)
        offsets = range(0, arenas.filled - width + 1, 16)
        assert begins == {(width, LAYOUT.out_bytes + header + offset) for offset in offsets}
    arenas.clear()


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


# --- Trusted ranks redraw the iteration of a slot: for all ranks, or for one rank whose peers keep their inputs ---


SEED, OTHER = 4242, 777


class Drawing(TrustedRank):
    """A trusted rank in this process, which has drawn one iteration."""

    def __init__(self, code: ProblemCode, setting: RankSetting) -> None:
        self.rank, self.code, self.setting = setting.rank, code, setting
        self.device = Device()
        self.arenas = TrustedArenas(self.device)
        for fd in self.arenas.make(MakeArenas(SlotLayout(1 << 20, 1 << 16, 16, 1, True), own=True, side=0)):
            os.close(fd)
        self.comparison = SimpleNamespace(new_iterations=lambda: None)  # type: ignore[assignment]
        self.constant, self.meaningful = False, SimpleNamespace(new_iterations=lambda: None)  # type: ignore[assignment]
        self.said: list[object] = []
        self.reply = lambda order, contents, fds=(): self.said.append(contents)  # type: ignore[method-assign]
        self.draw(Draw([SEED], timed=False, sides=[]), [])

    def fits(self, order: DrawAgain) -> bool:
        self.draw_again(order, [])
        return bool(self.said[-1])

    @property
    def values(self) -> list[torch.Tensor]:
        return [tensor.clone() for tensor in self.arenas.inputs_of(0).values()]


def two_ranks(slug: str) -> list[Drawing]:
    found = opened(next(problem for problem in PROBLEMS if problem.slug == slug), "bfloat16")
    assert found is not None
    code, setting, _ = found
    return [Drawing(code, setting.replace(rank=rank)) for rank in range(2)]


def same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, some, others))


def test_only_inputs_of_one_rank_are_drawn_anew() -> None:
    ranks = two_ranks("allreduce")
    before = [rank.values for rank in ranks]
    assert all(rank.fits(DrawAgain(0, OTHER, alone=1)) for rank in ranks)
    assert all(same(rank.values, old) for rank, old in zip(ranks, before, strict=True))
    for rank in ranks:
        rank.fits(DrawAgain(0, OTHER, alone=1, replace=True))
    assert [same(rank.values, old) for rank, old in zip(ranks, before, strict=True)] == [True, False]


def test_slot_is_redrawn_alone_once() -> None:
    for rank in two_ranks("allreduce"):
        rank.fits(DrawAgain(0, OTHER, alone=0))
        rank.fits(DrawAgain(0, OTHER, alone=0, replace=True))
        assert not rank.fits(DrawAgain(0, OTHER + 1, alone=0))
        assert rank.fits(DrawAgain(0, OTHER + 2))
        rank.fits(DrawAgain(0, OTHER + 2, replace=True))
        assert rank.fits(DrawAgain(0, OTHER + 3, alone=0))


def test_inputs_that_ranks_share_do_not_fit_alone() -> None:
    ranks = two_ranks("physicsnemo_distributed_rfft")
    fits = [rank.fits(DrawAgain(0, OTHER, alone=1)) for rank in ranks]
    assert fits == [True, False]  # rank 1's inputs do not change, but must


def test_other_shapes_or_readable_inputs_do_not_fit() -> None:
    for rank in two_ranks("allreduce"):
        with patch.object(rank.code, "is_withheld", lambda name: False):  # a kernel has seen all of them
            assert not rank.fits(DrawAgain(0, OTHER))
            assert not rank.fits(DrawAgain(0, OTHER, alone=rank.rank))
        rank.arenas.tables[0] = slots.lay_out({"tensor": torch.zeros(3)})[0]
        assert not rank.fits(DrawAgain(0, OTHER))
        assert not rank.fits(DrawAgain(0, OTHER, alone=rank.rank))


def test_timed_inputs_differ_where_upstreams_are_constant() -> None:
    first, _ = two_ranks("allreduce")
    rank = Drawing(first.code, first.setting.replace(distribution="upstream"))
    found, renewed = [], []
    for name in ("comparison", "meaningful"):
        renew = partial(renewed.append, name)
        setattr(rank, name, SimpleNamespace(new_iterations=renew))
    for constant, timed, seed in ((True, False, SEED), (False, True, OTHER), (True, True, SEED), (True, True, OTHER)):
        rank.constant = constant
        rank.draw(Draw([seed], timed=timed, sides=[]), [])
        found.append(rank.values)
    assert [same(*pair) for pair in itertools.pairwise(found)] == [True, False, False]
    assert rank.comparison_of(0) is rank.meaningful
    for meaningful in (True, False):
        assert rank.fits(DrawAgain(0, OTHER, meaningful=meaningful))
        assert rank.fits(DrawAgain(0, OTHER, meaningful=meaningful, replace=True))
        found.append(rank.values)
        assert rank.comparison_of(0) is (rank.meaningful if meaningful else rank.comparison)
    # Errors of a slot's iteration are no other one's.
    assert renewed == ["comparison"] * 3 + ["meaningful", "comparison", "meaningful", "meaningful"]


def test_large_inputs_that_upstream_never_changes() -> None:
    found = {}
    for slug in ("allreduce", "ddp", "gemm_allreduce"):
        rank, _ = two_ranks(slug)
        upstream = rank.setting.replace(distribution="upstream")
        table = slots.lay_out(dict(zip(rank.arenas.inputs_of(0), rank.values, strict=True)))[0]
        assert rank.changing(rank.setting, [SEED, OTHER])[1] == table
        found[slug] = rank.changing(rank.setting, [SEED, OTHER])[0] - rank.changing(upstream, [SEED, OTHER])[0]
    assert found["allreduce"] == {"tensor"}
    assert {"exp_avg_W1", "exp_avg_sq_W2"} <= found["ddp"]
    assert not found["gemm_allreduce"]
