"""Forked gloo ranks: their values come back, the first failure ends all of them, and no process is left."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from waiting import PATIENCE_S

from sandbox.admission import ranks
from sandbox.admission.ranks import RankFailed, in_gloo_ranks
from sandbox.rank.devices.device import Device


def children() -> set[int]:
    """Direct children of this process. A referee that other tests share starts and ends its own children meanwhile."""
    return {child.pid for child in psutil.Process().children()}


BEFORE = pytest.fixture(name="before")(children)


def test_every_rank_returns_what_it_computed_with_others() -> None:
    def work(rank: int, world: int) -> tuple[int, torch.Tensor]:
        total = torch.tensor([float(rank + 1)])
        dist.all_reduce(total)
        return rank, total

    before = children()
    found = in_gloo_ranks(3, work, timeout=PATIENCE_S)
    assert [rank for rank, _ in found] == [0, 1, 2]
    assert all(float(total) == 6.0 for _, total in found)
    assert children() == before


def test_more_than_a_pipe_holds_comes_back() -> None:
    (large,) = in_gloo_ranks(1, lambda rank, world: torch.ones(1 << 20), timeout=PATIENCE_S)
    assert float(large.sum()) == 1 << 20


@pytest.mark.parametrize(
    ("end", "words", "patience_s"),
    [
        (lambda: int("no such size"), "rank 1: .*ValueError: .*no such size", PATIENCE_S),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "rank 1: died of signal 9", PATIENCE_S),
        (lambda: os._exit(0), "rank 1: ended early", PATIENCE_S),
        (lambda: time.sleep(600), "rank 0: did not finish within 2 s", 2.0),
    ],
)
def test_rank_that_ends_without_answer_is_named(end, words, patience_s, before: set[int]) -> None:
    def work(rank: int, world: int) -> None:
        if rank == 1:
            end()
        time.sleep(600)

    with pytest.raises(RankFailed, match=f"(?s){words}") as caught:
        in_gloo_ranks(3, work, timeout=patience_s)
    assert f"rank {caught.value.rank}" == words.partition(":")[0]
    assert children() <= before


def test_rank_killed_by_signal_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "DEATH_SHOWS_WITHIN_S", 20.0)

    def work(rank: int, world: int) -> None:
        if rank == 0:
            raise RuntimeError("connection lost")
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RankFailed, match="rank 1: died of signal 9"):
        in_gloo_ranks(2, work, timeout=PATIENCE_S)


def test_no_rank_begins_before_all_have_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Device):
        def join(self, rank: int, world: int, folder: str, *, lazy: bool = False) -> None:
            super().join(rank, world, folder, lazy=lazy)
            if rank == 1:
                time.sleep(0.3)
                (tmp_path / "joined").touch()

    monkeypatch.setattr(ranks, "Device", Slow)
    found = in_gloo_ranks(2, lambda rank, world: (tmp_path / "joined").exists(), timeout=PATIENCE_S)
    assert found == [True, True]  # a rank that ends early would break connections that its peers are making
