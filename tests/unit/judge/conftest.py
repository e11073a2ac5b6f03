"""Simulated kinds of device for all tests in this folder."""

import pytest
from made_machine import MadeCpu, MadeGpu

from sandbox.machine.devices import KINDS


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeGpu:
    """Registers the simulated kinds of device and returns the one with a gate."""
    kind = MadeGpu()
    for each in (MadeCpu(), kind):
        monkeypatch.setitem(KINDS, each.name, each)
    return kind
