"""Transfers between real CPU ranks: every pair is measured in every way, and the data must arrive."""

import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from forked_programs import answer_of, fails
from waiting import PATIENCE_S

from sandbox.admission.ranks import RankFailed, in_gloo_ranks
from sandbox.protocol.result import Transfers, joined
from sandbox.rank import transfers
from sandbox.rank.devices import device, transfer_ways
from sandbox.rank.devices.device import Device
from sandbox.rank.devices.transfer_ways import Pair, Way, Ways

CommandLine = Callable[..., Any]
SMALL = 4096


def test_every_pair_is_measured_by_its_first_rank(
    in_ranks: Callable[..., list[Transfers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "LARGEST_TRANSFER", 128 << 10)
    found = in_ranks(3, lambda rank, world: transfers.measure(Device()))
    assert [[pair.ranks for pair in each.pairs] for each in found] == [[(0, 1), (0, 2)], [(1, 2)], []]
    whole = joined(found)
    assert whole.sizes == [size for size in transfers.SIZES if size <= 128 << 10]
    assert whole.ways == ["memory stores", "memory loads", "gloo"]
    for pair in whole.pairs:
        for times in pair.us.values():
            assert len(times) == len(whole.sizes)
            assert all(0 < us < 10e6 for us in times)


def test_one_rank_has_no_pair(in_ranks: Callable[..., list[Transfers]]) -> None:
    assert in_ranks(1, lambda rank, world: transfers.measure(Device())) == [Transfers([], [])]


def test_peaks_count_all_that_moved(in_ranks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "fastest", lambda self, work: 2.0)
    peaks = dict.fromkeys(("flops.bfloat16", "flops.float32"), 384.0**3)
    peaks |= {"local": float(32 << 20), "link": device.LINK_BYTES / 2, "launch_us": 2e4}
    assert in_ranks(2, lambda rank, world: Device().peaks()) == [peaks, peaks]


def test_way_that_moves_half_of_block_is_failure() -> None:
    def half(pair: Pair, nbytes: int, turns: int) -> None:
        to, source = pair.there(nbytes // 2), pair.own[: nbytes // 2]
        pair.by_host(turns, lambda: to.copy_(source))

    class Halving(Device):
        def transfer_ways(self) -> Ways:
            return Ways(SMALL, {"halves": Way(half)}, super().transfer_ways().seconds)

    with pytest.raises(RankFailed, match="halves has moved wrong data between ranks 0 and 1"):
        in_gloo_ranks(2, lambda rank, world: transfers.measure(Halving()), timeout=PATIENCE_S)


def test_fastest_repetition_counts_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(device.dist, "barrier", lambda: done.append("barrier"))
    measured = Device()
    monkeypatch.setattr(measured, "synchronize", lambda: done.append("done"))
    for finish in (True, False):
        durations = [9.0, 5.0, 3.0, 7.0, 8.0, 6.0, 4.0]
        times = iter([time for duration in durations for time in (100.0, 100.0 + duration)])
        monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter=times.__next__))
        done.clear()
        assert measured.fastest(lambda: done.append("work"), finish) == 3.0
        assert done == ["work", "done", *["barrier", "done", "work", "done", *["done"] * finish] * 7]


def team_of_two() -> Any:
    """A team of which this rank is the second, and which tells its signals."""
    told: list[Any] = []
    epochs = itertools.count(5)
    names = {"signal": "signal", "wait": "wait", "host_barrier": "all"}
    calls = {name: lambda *given, word=word: told.append((word, *given)) for name, word in names.items()}
    return SimpleNamespace(rank=1, told=told, epochs=epochs, next_epoch=epochs.__next__, **calls)


@pytest.mark.parametrize("first", [True, False])
def test_ranks_move_a_block_in_turns(first: bool) -> None:
    team = team_of_two()
    pair = Pair(team, (4, 7), 4 if first else 7, torch.zeros(1), torch.zeros(1))
    pair.by_host(3, lambda: team.told.append(("move",)))
    own = [[("move",), ("signal", 0, 0, 5 + turn)] for turn in range(3)]
    others = [[("wait", 0, 0, 5 + turn, transfer_ways.TURN_SECONDS)] for turn in range(3)]
    assert team.told == [*own[0], *others[1], *own[2]] if first else [*others[0], *own[1], *others[2]]
    assert (pair.peer, next(team.epochs)) == (7 if first else 4, 8)


def test_turns_are_timed_once_both_ranks_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    team = team_of_two()
    times = iter([5.0, 7.5])
    monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter=lambda: team.told.append("clock") or next(times)))
    pair = Pair(team, (0, 1), 0, torch.zeros(1), torch.zeros(1))
    assert Device().transfer_ways().seconds(lambda: team.told.append("work"), pair) == 2.5
    assert team.told == [("all",), "clock", "work", "clock"]


@pytest.mark.parametrize(("pulls", "into"), [(False, False), (True, False), (False, True)])
def test_time_of_block_is_mean_of_fastest_series(pulls: bool, into: bool) -> None:
    sizes = [2 << 10, 32 << 20, 256 << 20]
    blocks = [torch.zeros(4096, dtype=torch.uint8) for _ in range(3)]
    team = team_of_two()
    pair, target = Pair(team, (0, 1), 0, *blocks[:2]), blocks[2 if into else 0 if pulls else 1]
    source = blocks[1 if pulls else 0]
    seen = []

    def run(mover: Pair, nbytes: int, turns: int) -> None:
        seen.append((nbytes, turns, int(source[0]), int(target.sum())))
        target[:nbytes] = 2

    series = iter([*[3e-3, 2e-3, 4e-3, 5e-3, 6e-3], *[1.0] * 10])
    offered = Ways(0, {}, lambda work, mover: work() or next(series))
    way = Way(run, pulls, blocks[2] if into else None)
    found = [transfers._us("copies", way, offered, pair, size, Device()) for size in sizes]
    turns = [40, 12, 2]
    assert [each[:2] for each in seen[::5]] == [*zip(sizes, turns, strict=True)]
    assert seen[0][2:] == (1, 0)
    assert found == [round(2e3 / 40, 3), round(1e6 / 12, 3), 5e5]
    assert team.told == [("all",)] * 6


@pytest.mark.further
def test_the_command_measures_stores_and_shows_them_again(pkb_arena: CommandLine) -> None:
    assert "nothing was measured here" in pkb_arena("transfers", "--device", "cpu", "--stored").stderr
    found = answer_of(pkb_arena("transfers", "--device", "cpu", "--json"))
    (pair,) = found["pairs"]
    assert (found["device"], found["world"], pair["ranks"], found["sizes"][-1]) == ("cpu", 2, [0, 1], 32 << 20)
    for way, times in pair["us"].items():
        rates = [size / us / 1e3 for size, us in zip(found["sizes"], times, strict=True)]
        assert pair["gb_s"][way] == pytest.approx(rates)
    again = pkb_arena("transfers", "--device", "cpu", "--stored", "--json")
    assert json.loads(again.stdout) == found
    shown = pkb_arena("transfers", "--device", "cpu", "--stored", COLUMNS="60").stdout
    assert "µs      memory stores   memory loads      gloo" in shown


def test_one_rank_is_refused_before_anything_starts(pkb_arena: CommandLine) -> None:
    fails(pkb_arena("transfers", "--device", "cpu", "--world", "1"), 2, "transfers need at least 2 ranks")
