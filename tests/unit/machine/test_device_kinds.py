"""Kinds of device: each is one object for the referee and one module for ranks, and a new kind needs no other code."""

import importlib
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.jail import memory
from sandbox.machine.devices import KINDS, Cpu, kind_of
from sandbox.machine.devices.kind import Pace
from sandbox.machine.placement import RankGpu
from sandbox.protocol import events
from sandbox.protocol.events import Finished, Refused, Run, Setting
from sandbox.protocol.verdict import Verdict
from sandbox.referee.lease import devices_of
from sandbox.referee.main import Referee
from sandbox.timing.roofline import Peaks


class Fake(Cpu):
    """A kind that exists in this test alone; its ranks are CPU ranks."""

    name = "fake"
    pace = Pace(batch_s=0.001, slower_s=0.01, calls=3, slots=6, pairs=2, gated_pairs=0, references=1)
    out_of_reach = 1e15, 2e15, 3e15

    def __init__(self) -> None:
        self.settled: list[int] = []

    def lease_names(self, world: int) -> list[str]:
        return [f"fake-{rank}" for rank in range(world)]

    def environment(self, gpus: Sequence[RankGpu]) -> dict[str, str]:
        return {"PKB_TEST_FAKE_DEVICE": "of this kind"}

    def settle_threads(self, ranks: Iterable[int]) -> None:
        self.settled += ranks


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    kind = Fake()
    monkeypatch.setitem(KINDS, kind.name, kind)
    return kind


def setting(device: str) -> Setting:
    problem = load_catalogue().find("1")
    chosen = choose_setting(problem, Choice(preset="tiny", world=2, device="cpu"), Settings())
    return msgspec.structs.replace(chosen, device=device)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_its_module_on_ranks_side(name: str) -> None:
    kind = kind_of(name)
    assert kind.name == name
    assert callable(importlib.import_module(kind.rank_module).device)


def test_each_place_asks_the_kind(fake: Fake) -> None:
    assert devices_of(setting("fake")) == ["fake-0", "fake-1"]
    assert Peaks(device="fake").impossible() == Peaks(1e15, 2e15, 3e15, "fake")


def test_a_kinds_own_host_memory_comes_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_WORLD_MEMORY", str(1 << 30))
    assert memory.limit_bytes(2 * kind_of("cuda").host_bytes) == (1 << 30) + (12 << 30)
    assert memory.limit_bytes(2 * kind_of("cpu").host_bytes) == 1 << 30


def judge(run: Run, output: pytest.CaptureFixture[bytes]) -> list[events.AnyEvent]:
    """Judges a run by a referee in this process and returns the events."""
    referee = Referee()
    try:
        referee.judge(run)
    finally:
        referee.close()
    return [events.decode_event(line) for line in output.readouterr().out.splitlines()]


@pytest.mark.slow
def test_new_device_kind_is_judged_by_its_object(fake: Fake, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    # The kernel passes only on ranks that were started with the kind's own environment.
    source = f"import os\nassert os.environ['PKB_TEST_FAKE_DEVICE']\n{load_catalogue().find('1').baseline_source}"
    run = Run(run_id="1", setting=setting("fake"), kernel_name="kernel.py", source=source, rounds=2)
    found = judge(run, capfdbinary)
    (end,) = [event for event in found if isinstance(event, Finished)]
    assert end.result.verdict is Verdict.PASS, end.result.detail
    assert end.result.rounds == 2
    assert max(batches.calls for batches in end.result.samples.call) <= fake.pace.calls
    assert len(fake.settled) == 4  # two ranks in each of the two timed worlds


def test_unregistered_kind_is_refused_with_registered_ones(
    fake: Fake, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run = Run(run_id="1", setting=setting("abacus"), kernel_name="kernel.py", source="")
    (end,) = [event for event in judge(run, capfdbinary) if isinstance(event, Refused)]
    assert "no device 'abacus': choose cpu or cuda or fake" in end.message
