"""Makes the made parts importable by the tests beside it; made kinds of device for all of them."""

import importlib.util
import sys
from pathlib import Path

import pytest

for _name in (
    "made_clock",
    "made_kernels",
    "made_worlds",
    "made_trusted",
    "made_machine",
):  # each needs those before it
    _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_name}.py"))
    assert _spec is not None
    assert _spec.loader is not None
    _module = sys.modules[_name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)

from made_machine import MadeCpu, MadeGpu, MadeStoppable  # noqa: E402

from sandbox.machine.devices import KINDS  # noqa: E402


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeGpu:
    """The made kinds of device are known; returns the one with a gate."""
    kind = MadeGpu()
    for other in (MadeCpu(), MadeStoppable()):
        monkeypatch.setitem(KINDS, other.name, other)
    monkeypatch.setitem(KINDS, kind.name, kind)
    return kind
