"""Symmetric memory between real ranks."""

import ctypes
import itertools
import resource
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
import torch
import torch.distributed as dist

from sandbox.kit import errors, symm
from sandbox.kit.compilers import gcc
from sandbox.kit.layout import ALIGN, HEAD_BYTES
from sandbox.kit.symmetric_memory import heap, host_signals

DTYPES = [torch.bfloat16, torch.float32, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]


def _pattern(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + rank * 31) % 101).to(dtype).view(shape)


def read_peers(rank: int, world: int) -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn):
        mine = symm.stage(_pattern(rank, (5, 7), dtype))
        symm.barrier()
        peers = symm.peers(mine)
        assert len(peers) == world == symm.world
        assert symm.rank == rank
        for peer in symm.order():
            assert torch.equal(peers[peer].view(torch.uint8), _pattern(peer, (5, 7), dtype).view(torch.uint8))
        assert peers[rank].data_ptr() == mine.data_ptr()
        assert symm.ptrs(mine) == [peer.data_ptr() for peer in peers]


def write_peers(rank: int, world: int) -> None:
    board = symm.empty((world, 1000), torch.float32, tag="board")
    assert symm.empty((world, 1000), torch.float32, tag="board") is board
    for turn in range(20):
        for peer in symm.order():
            symm.peers(board)[peer][rank] = turn * 100 + rank
        symm.barrier()
        assert board[:, 17].tolist() == [turn * 100 + source for source in range(world)]
        symm.barrier()


def one_barrier_per_call(rank: int, world: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    for turn in range(100):
        mine = symm.stage(torch.full((64,), turn * 10 + rank))
        symm.barrier()
        if torch.rand(1, generator=generator).item() < 0.05:
            time.sleep(0.002)  # a slow reader: the others must not overwrite what it reads
        assert [int(peer[5]) for peer in symm.peers(mine)] == [turn * 10 + peer for peer in range(world)]


def views(rank: int, world: int) -> None:
    whole = symm.empty((6, 8), torch.float32)
    whole.copy_(_pattern(rank, (6, 8), torch.float32))
    symm.barrier()
    for peer in range(world):
        expected = _pattern(peer, (6, 8), torch.float32)
        assert torch.equal(symm.peers(whole[2:4, 1:])[peer], expected[2:4, 1:])
        assert torch.equal(symm.peers(whole.T)[peer], expected.T)
    square = symm.stage(_pattern(rank, (4, 4), torch.float32), tag="square")
    empty = symm.stage(torch.zeros(3, 0))
    symm.barrier()
    assert [peer.shape for peer in symm.peers(empty)] == [empty.shape] * world
    kept = symm.peers(square)
    for view in (square, square.T, square, square[:2], square.view(torch.int32)):  # of one address
        found = [(peer.shape, peer.stride(), peer.dtype) for peer in symm.peers(view)]
        assert found == [(view.shape, view.stride(), view.dtype)] * world
        symm.peers(view).clear()  # the caller's own list
    assert [*map(id, symm.peers(square))] == [*map(id, kept)]


def outputs_in_a_ring(rank: int, world: int) -> None:
    first = [symm.out((4,), torch.float32) for _ in range(4)]
    assert len({t.data_ptr() for t in first}) == 4
    assert symm.out((4,), torch.float32).data_ptr() == first[0].data_ptr()
    assert symm.out((4,), torch.float32, tag="other").data_ptr() not in {t.data_ptr() for t in first}


def signals(rank: int, world: int) -> None:
    """Passes a token round the ranks; each adds its rank + 1."""
    box = symm.empty((1,), torch.int64, tag="box")
    box.zero_()
    symm.barrier()
    for lap in range(1, 6):
        if rank or lap > 1:
            symm.wait((rank - 1) % world, slot=3, value=lap if rank else lap - 1)
        token = box + rank + 1
        symm.peers(box)[(rank + 1) % world].copy_(token)
        symm.signal((rank + 1) % world, slot=3, value=lap)
    if rank == 0:
        symm.wait((rank - 1) % world, slot=3, value=5)
        assert box.item() == 5 * world * (world + 1) // 2


def teams(rank: int, world: int) -> list[int]:
    columns = [dist.new_group(list(range(start, world, 2))) for start in (0, 1)]
    column = symm.sub(columns[rank % 2])
    row = symm.sub([rank // 2 * 2, rank // 2 * 2 + 1])
    assert symm.sub(column.ranks) is column
    # Unequal use of the heap by one team must not shift the buffers of the next.
    if rank % 2:
        column.empty((1000,), torch.float32, tag="only odd ranks have this")
    got = []
    for team in (column, row, symm.connect()):
        mine = team.stage(torch.tensor([float(rank)]))
        team.barrier()
        got.append([int(peer.item()) for peer in team.peers(mine)])
        assert team.px.rank == team.ranks.index(rank)
        assert got[-1] == list(team.ranks)
    return got


def test_teams_have_their_own_buffers_and_barriers(worlds):
    assert worlds.run(teams, 4) == [
        [[0, 2], [0, 1], [0, 1, 2, 3]],
        [[1, 3], [0, 1], [0, 1, 2, 3]],
        [[0, 2], [2, 3], [0, 1, 2, 3]],
        [[1, 3], [2, 3], [0, 1, 2, 3]],
    ]


def buffers_of_a_smaller_team(rank: int, world: int) -> None:
    if rank < 2:
        mine = symm.sub([0, 1]).stage(torch.zeros(3))
        with pytest.raises(errors.SymmetricMemoryError, match="smaller team"):
            symm.peers(mine)
    symm.barrier()
    assert symm.sub(range(world)) is symm.connect()
    others = [r for r in range(world) if r != rank]
    for ranks, words in (
        (others, "only members"),
        ([rank, rank], "no set of ranks"),
        ([rank, world], "no set of ranks"),
    ):
        with pytest.raises(errors.SymmetricMemoryError, match=words):
            symm.sub(ranks)
    with pytest.raises(errors.SymmetricMemoryError, match=r"not symmetric memory.*`stage`"):
        symm.peers(torch.zeros(3))


def absent_at_barrier(rank: int, world: int) -> str:
    symm.barrier()
    said = ""
    for present in (2, 0):  # one after the other: rank 0 finds that rank 2 has arrived, however slow the machine is
        if rank == present:
            with pytest.raises(errors.BarrierTimeout) as caught:
                symm.barrier(timeout_s=0.1)
            assert caught.value.missing == ((1, 3) if rank == 0 else (0, 1, 3))
            said = str(caught.value)
        dist.barrier()
    return said


def test_barrier_that_times_out_names_missing_ranks(worlds):
    texts = worlds.run(absent_at_barrier, 4)
    assert texts[0].startswith("ranks 1, 3 did not arrive within 0.1 s")


def absent_at_first_use(rank: int, world: int) -> str:
    if rank == world - 1:
        dist.barrier()
        return ""
    with pytest.raises(errors.BarrierTimeout) as caught:
        symm.connect(timeout_s=0.5)
    dist.barrier()
    return str(caught.value)


def test_first_use_names_rank_that_does_not_come(worlds):
    texts = worlds.run(absent_at_first_use, 2)
    assert texts[0].startswith("rank 1 did not reach its first symm call")


def unanswered_wait(rank: int, world: int) -> None:
    with pytest.raises(errors.BarrierTimeout, match=f"rank {1 - rank} did not signal 7 in slot 2"):
        symm.wait(1 - rank, slot=2, value=7, timeout_s=0.1)
    with pytest.raises(errors.SymmetricMemoryError, match=r"slot 1008 is outside 0\.\.1007"):
        symm.signal(1 - rank, slot=1008, value=1)


def different_shapes(rank: int, world: int) -> None:
    with pytest.raises(errors.SymmetricMemoryError, match=r"different buffers: .*\[[34]\].* for .*\[[34]\]"):
        symm.empty((3 + rank,), torch.float32)


def fill_the_heap(rank: int, world: int) -> None:
    with pytest.raises(errors.SymmetricMemoryError, match=r"heap is full.*PKB_SYMM_BYTES"):
        symm.empty((3 << 20,), torch.uint8)
    # The refused buffer takes no memory: a smaller one still fits.
    assert symm.empty((1 << 19,), torch.uint8).numel() == 1 << 19


def test_a_full_heap_says_what_to_do(worlds):
    worlds.run(fill_the_heap, 2, PKB_SYMM_BYTES=str(1 << 20))


def impossible_size(rank: int, world: int) -> str:
    with pytest.raises(errors.SymmetricMemoryError) as caught:
        symm.connect()
    return str(caught.value)


@pytest.mark.parametrize("size", ["64 MiB", "1000", str(1 << 60)])
def test_impossible_heap_is_refused_on_every_rank(worlds, size):
    for text in worlds.run(impossible_size, 2, PKB_SYMM_BYTES=size):
        assert "PKB_SYMM_BYTES" in text


def epochs_near_the_wrap(rank: int, world: int) -> None:
    team = symm.connect()
    team._barriers = team._epoch = 0xFFFF_FFF0
    signals = host_signals.host_signals()
    # A pad's words start at 0, which is "before" an epoch only up to 0x80000000: raise them in steps first.
    for step in range(0, 0xFFFF_FFF0, 0x4000_0000):
        assert signals.barrier(team.px, 1023, step, 60_000) == 0
    for _ in range(64):
        team.barrier(timeout_s=60)
    assert team._barriers == 0x30
    assert [team.next_epoch() for _ in range(17)][-2:] == [0, 1]


def numbers_that_are_read_late(rank: int, world: int) -> None:
    team, barriers = symm.connect(), []
    barrier = team._host_barrier

    def slow(*given: object) -> None:
        barrier(*given)
        barriers.append(given)
        if rank == 0:
            time.sleep(0.002)  # the others go on, up to the barrier of their next exchange

    team._host_barrier = slow
    for turn in range(20):
        assert team.gather_numbers(turn, rank) == [(turn, peer) for peer in range(world)]
    assert len(barriers) == 20
    assert [told[69] for told in team.gather_numbers(*range(rank, rank + 70))] == [peer + 69 for peer in range(world)]


WORK = [
    *itertools.product([read_peers, write_peers, signals], [1, 2, 3, 4, 8]),
    *itertools.product([one_barrier_per_call, numbers_that_are_read_late], [2, 3, 8]),
    *((work, 2) for work in (views, outputs_in_a_ring, unanswered_wait, different_shapes)),
    (epochs_near_the_wrap, 2),
    (buffers_of_a_smaller_team, 3),
]


@pytest.mark.parametrize(("work", "world"), WORK)
def test_ranks_agree(worlds, work, world):
    worlds.run(work, world)


def without_a_compiler(rank: int, world: int) -> float:
    assert isinstance(host_signals.host_signals(), host_signals.Signals)
    read_peers(rank, world)
    signals(rank, world)
    if world == 2:
        unanswered_wait(rank, world)
    start = time.perf_counter()
    for _ in range(50):
        symm.barrier()
    return time.perf_counter() - start


@pytest.mark.parametrize("world", [2, 3])
def test_everything_works_without_a_compiler(worlds, world):
    worlds.run(without_a_compiler, world, CXX="no-such-compiler")


WAIT = """
#include <sched.h>
#include <unistd.h>
static int yield() { return usleep(2000); }
#define sched_yield yield
#include "px_cpu.h"
PX_EXPORT unsigned px_sleeps(unsigned word) {
    px_reached(&word, 1, 20);
    return px_sleeping_waits;
}
"""


def test_waits_sleep_where_yields_lose_the_core(tmp_path):
    gcc.compile_shared(WAIT, (), tmp_path / "wait.so")
    library = ctypes.CDLL(str(tmp_path / "wait.so"))
    assert library.px_sleeps(1) == 0  # it has arrived
    assert library.px_sleeps(0) == 4096
    assert library.px_sleeps(0) == 4095


def test_a_heap_on_gpus_is_reserved_in_time(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(symm, "_reserve", asked.append)
    symm.reserve(1 << 40)
    monkeypatch.setattr(symm, "_world_team", object())
    for backends in ("gloo", "cpu:gloo,cuda:nccl"):
        monkeypatch.setattr(dist, "get_backend_config", lambda backends=backends: backends)
        symm.reserve(1)
        if backends == "gloo":  # CPU ranks map what they use
            symm.reserve(1 << 41)
    with pytest.raises(errors.SymmetricMemoryError, match="too late"):
        symm.reserve(1 << 41)
    assert asked == [1 << 40, 1, 1 << 41, 1]


@pytest.mark.parametrize(
    ("named", "limit", "in_file", "found"),
    [
        *((None, resource.RLIM_INFINITY, True, heap.DEFAULT_BYTES), (None, 1 << 50, True, heap.DEFAULT_BYTES)),
        *((None, HEAD_BYTES + 3 * 4096 + 5, True, 3 * 4096), (None, 5, True, 4096), (None, 5, False, 8192)),
        *(("4096", 5, True, 4096), ("5000", 5, False, 8192), ("4095", 5, True, None), ("all", 5, True, None)),
    ],
)
def test_size_of_heap_fits_what_is_allowed(monkeypatch, named, limit, in_file, found):
    monkeypatch.delenv("PKB_SYMM_BYTES", raising=False)
    if named is not None:
        monkeypatch.setenv("PKB_SYMM_BYTES", named)
    monkeypatch.setattr(heap, "_reserved", 5000)
    monkeypatch.setattr(resource, "getrlimit", lambda of: (limit, limit))
    with (
        nullcontext() if found else pytest.raises(errors.SymmetricMemoryError, match=f"at least 4096; it is '{named}'")
    ):
        assert heap.heap_bytes(in_file) == found


def test_heaps_of_gpus_have_small_ones_of_hosts(monkeypatch):
    told, team = [], Mock()
    gpus = SimpleNamespace(DeviceSignals=lambda: "signals", device_heap=lambda *a: told.append(a[2]) or "heap")
    monkeypatch.setitem(sys.modules, "sandbox.kit.symmetric_memory.device_heap", gpus)
    monkeypatch.setattr(symm, "host_heap", lambda *a: told.append(a[3]) or "mapped")
    monkeypatch.setattr(symm, "heap_bytes", lambda in_file=False: 7 if in_file else 9)
    monkeypatch.setattr(symm, "host_signals", lambda: "host")
    monkeypatch.setattr(symm, "Team", lambda *a: told.append(a) or team)
    groups = SimpleNamespace(_get_default_store=lambda: None)
    for backend, size, expected, fault in (
        ("cuda:nccl", 8, [ALIGN, 9, ("mapped", "heap", "signals", range(8), "host")], ""),
        ("gloo", 2, [7, ("mapped", "mapped", "host", range(2))], ""),
        ("gloo", 9, [], "up to 8 ranks, this one has 9"),
        ("gloo", 0, [], "symm needs torch.distributed"),
    ):
        there = {"is_available": size > 0, "is_initialized": True, "get_rank": 0, "get_world_size": size}
        made = {name: lambda value=value: value for name, value in (there | {"get_backend_config": backend}).items()}
        monkeypatch.setattr(symm, "dist", SimpleNamespace(distributed_c10d=groups, **made))
        told.clear()
        with pytest.raises(errors.SymmetricMemoryError, match=fault) if fault else nullcontext():
            assert symm._connect(3.0) is team
        assert told == expected
    assert (team.host_barrier.mock_calls, team.barrier.mock_calls) == ([call(3.0)], [call(3.0)])


def rings_of_results(rank: int, world: int) -> list[int]:
    team = symm.connect()
    half = team._heap.bytes // 2
    kept = []
    for count in (1000, half // 5, half // 3):  # 4 fit; 4 fit behind those; not even 2 fit
        addresses = [team.out(count, torch.uint8, f"result {count}").data_ptr() for _ in range(9)]
        kept.append(len(set(addresses)))
        assert addresses[: kept[-1]] == addresses[kept[-1] : 2 * kept[-1]]
    return kept


def test_results_take_turns_in_half_the_heap(worlds):
    assert worlds.run(rings_of_results, 2) == [[4, 4, 2]] * 2
