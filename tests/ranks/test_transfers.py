"""Transfers between real CPU ranks: every pair is measured in every way, and the data must arrive."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from forked_programs import answer_of, fails
from waiting import PATIENCE_S

from sandbox.admission.ranks import RankFailed, in_gloo_ranks
from sandbox.protocol.result import Transfers, joined
from sandbox.rank import transfers
from sandbox.rank.devices import device
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
