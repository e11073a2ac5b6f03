import os
import time
from pathlib import Path

import pytest

from sandbox.machine.locked_folder import CANARY, SPECTATOR, WORLD, LockedFolder, remove_all_leftovers


@pytest.mark.parametrize("age", [3600, -1e7], ids=["old", "of a clock that was set back"])
@pytest.mark.parametrize("prefix", [WORLD, SPECTATOR, CANARY, f".{CANARY}"])
def test_folders_of_killed_processes_go_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, age: float
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    mine = LockedFolder(prefix, tmp_path)
    (tmp_path / f"{prefix}orphan" / "rank0").mkdir(parents=True)
    (tmp_path / f"{prefix}young").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / f"{prefix}link").symlink_to(tmp_path / "kept")
    long_ago = time.time() - age
    for path in (mine.path, tmp_path / f"{prefix}orphan", tmp_path / "kept"):
        os.utime(path, (long_ago, long_ago))
    os.utime(tmp_path / f"{prefix}link", (long_ago, long_ago), follow_symlinks=False)
    assert remove_all_leftovers() == 1
    assert not (tmp_path / f"{prefix}orphan").exists()
    assert (tmp_path / f"{prefix}young").exists()
    assert (tmp_path / "kept").exists()
    assert mine.path.exists()
    mine.remove()
    assert not mine.path.exists()
