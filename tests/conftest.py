"""Walls every test off from the settings, data and terminal of whoever runs it."""

import os
from pathlib import Path

import pytest

import arena
from arena.paths import Paths

ROOT = Path(arena.__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for settings, data and state; what the environment says about colours is gone."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PKB_ARENA_HOME", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the subprocesses of tests that start in other folders
    for name in list(os.environ):
        if name in {"NO_COLOR", "FORCE_COLOR", "COLORTERM", "EDITOR", "VISUAL", "COLUMNS", "LINES"}:
            monkeypatch.delenv(name)
        elif name.startswith(("TEXTUAL_", "PKB_")) and name != "PKB_ARENA_HOME":
            monkeypatch.delenv(name)
    return folder


@pytest.fixture
def paths(home: Path) -> Paths:
    """The folders of this test."""
    return Paths(config=home / "config", data=home / "data", state=home / "state")
