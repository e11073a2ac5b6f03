"""Walls every test off from the settings, data and terminal of whoever runs it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import arena
from arena.jail_policy import is_jail
from arena.paths import Paths
from sandbox.jail.choice import choose

_TERMINAL = {"NO_COLOR", "FORCE_COLOR", "COLORTERM", "EDITOR", "VISUAL", "COLUMNS", "LINES"}
ROOT = Path(arena.__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for settings, data and state; the environment's say on colours is gone."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PKB_ARENA_HOME", str(folder))
    # For the subprocesses of tests that start in other folders; where packages were found, they are still.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    for name in list(os.environ):
        kept = name == "PKB_ARENA_HOME" or name.startswith("TEXTUAL_SNAPSHOT")  # the plugin's own
        ours = name.startswith(("TEXTUAL_", "PKB_")) and not kept
        if ours or name in _TERMINAL:
            monkeypatch.delenv(name)
    return folder


@pytest.fixture
def paths(home: Path) -> Paths:
    """The folders of this test."""
    return Paths(config=home / "config", data=home / "data", state=home / "state")


@pytest.fixture(scope="session")
def walls() -> None:
    """For tests of kernels that must not run without a jail: skipped where there is none, but not in continuous integration."""
    jail = choose()
    if not is_jail(jail.name):
        why = "; ".join(f"{name}: {reason}" for name, reason in jail.rejected.items())
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no walls around kernels here: {why}")


CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def pkb_arena(tmp_path: Path) -> CommandLine:
    """Runs the real command line in a process of its own, in this test's folder."""

    def call(*arguments: str, timeout: float = 110, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-P", "-m", "arena.cli", *arguments],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | environment,
            check=False,
        )

    return call
