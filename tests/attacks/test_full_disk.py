"""A full or read-only disk leads to a message that names it, and to a verdict wherever one is possible."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playing_agent import RIGHT
from waiting import PATIENCE_S

MOUNT = 'mount -t tmpfs -o "$OPTIONS" tmpfs "$PKB_ARENA_HOME"'
FILL = 'head -c 4M /dev/zero > "$PKB_ARENA_HOME/fill" 2>/dev/null || true'

OnDisk = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def on_disk(home: Path, tmp_path: Path) -> OnDisk:
    """Runs the command line with its folders on a private disk (tmpfs), which disappears when the command ends."""
    home.mkdir()
    (tmp_path / "kernel.py").write_text(RIGHT)

    def call(options: str, *arguments: str, full: bool = False) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "arena.cli", *arguments]
        script = " && ".join([MOUNT, *([FILL] if full else []), 'exec "$@"'])
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *command],
            cwd=tmp_path,
            env=os.environ | {"OPTIONS": options, "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    tried = ["unshare", "--mount", "sh", "-c", MOUNT]
    trial = subprocess.run(tried, env=os.environ | {"OPTIONS": "size=1m"}, capture_output=True, text=True, check=False)
    if trial.returncode:
        pytest.skip(f"no disk can be mounted here: {trial.stderr.strip()}")
    return call


@pytest.mark.slow
def test_full_disk_is_named_and_run_goes_on(on_disk: OnDisk) -> None:
    done = on_disk("size=1m", "run", "1", "kernel.py", "--rounds", "2", full=True)
    assert done.returncode == 0
    assert "PASS" in done.stdout
    assert "No space left on device" in done.stderr
    assert "free some space" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "command", "words"),
    [
        ("size=1m", "new 1 -o home/mine.py", ["No space left on device"]),
        pytest.param(
            "size=1m", "sweep 1 --rounds 0 --device cpu --name c", ["No space left on device"], marks=pytest.mark.slow
        ),
        ("ro", "run 1 kernel.py", ["Read-only file system", "PKB_ARENA_HOME"]),
    ],
)
def test_disk_that_loses_everything_stops_and_is_named(
    on_disk: OnDisk, options: str, command: str, words: list[str]
) -> None:
    done = on_disk(options, *command.split(), full=options != "ro")
    assert done.returncode == 3
    assert [word for word in words if word not in done.stderr] == []
    assert "Traceback" not in done.stderr


@pytest.mark.further
def test_doctor_counts_what_is_left(on_disk: OnDisk) -> None:
    done = on_disk("size=1m", "doctor", full=True)
    assert "0 MiB free" in done.stdout
    assert "free some space" in done.stdout
