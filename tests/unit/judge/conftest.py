"""Simulated kinds of device for all tests in this folder."""

import pytest
from made_machine import MadeCpu, MadeGpu

from sandbox.machine import processes
from sandbox.machine.devices import KINDS


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeGpu:
    """Registers the simulated kinds of device, on a machine of their own, and returns the one with a gate."""
    monkeypatch.setattr(processes, "outside_seconds", lambda: 0.0)
    kind = MadeGpu()
    for each in (MadeCpu(), kind):
        monkeypatch.setitem(KINDS, each.name, each)
    return kind
