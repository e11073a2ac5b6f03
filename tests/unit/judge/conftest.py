"""Made kinds of device for all tests beside it."""

import pytest
from made_machine import MadeCpu, MadeGpu

from sandbox.machine.devices import KINDS


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeGpu:
    """The made kinds of device are known; returns the one with a gate."""
    kind = MadeGpu()
    for each in (MadeCpu(), kind):
        monkeypatch.setitem(KINDS, each.name, each)
    return kind
