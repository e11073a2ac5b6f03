"""Made kinds of device for all tests beside it."""

import pytest
from made_machine import MadeCpu, MadeGpu, MadeStoppable

from sandbox.machine.devices import KINDS


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeGpu:
    """The made kinds of device are known; returns the one with a gate."""
    kind = MadeGpu()
    for other in (MadeCpu(), MadeStoppable()):
        monkeypatch.setitem(KINDS, other.name, other)
    monkeypatch.setitem(KINDS, kind.name, kind)
    return kind
