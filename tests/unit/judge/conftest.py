"""Simulated kinds of device for all tests in this folder."""

import random

import pytest
from made_machine import MadeCpu, MadeGpu

from sandbox.machine import processes
from sandbox.machine.devices import KINDS
from sandbox.timing import probes


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeGpu:
    """Registers the simulated kinds of device, on a machine of their own, and returns the one with a gate."""
    monkeypatch.setattr(processes, "outside_seconds", lambda: 0.0)
    monkeypatch.setattr(
        random, "SystemRandom", lambda: random.Random(3)
    )  # the order of batches decides what noise they get
    # reading progress at every simulated us takes long
    monkeypatch.setattr(probes, "SPIN_SECONDS", probes.SLEEP_SECONDS)
    kind = MadeGpu()
    for each in (MadeCpu(), kind):
        monkeypatch.setitem(KINDS, each.name, each)
    return kind
