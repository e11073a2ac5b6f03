import os
import time

from sandbox.worlds import world_folder
from sandbox.worlds.world_folder import PREFIX, WorldFolder, remove_leftovers


def test_folders_of_killed_referees_go_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(world_folder.tempfile, "tempdir", str(tmp_path))
    mine = WorldFolder()
    (tmp_path / f"{PREFIX}orphan" / "rank0").mkdir(parents=True)
    (tmp_path / f"{PREFIX}young").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "kept")
    long_ago = time.time() - 3600
    for path in (mine.path, tmp_path / f"{PREFIX}orphan", tmp_path / "kept"):
        os.utime(path, (long_ago, long_ago))
    os.utime(tmp_path / f"{PREFIX}link", (long_ago, long_ago), follow_symlinks=False)
    assert remove_leftovers() == 1
    assert not (tmp_path / f"{PREFIX}orphan").exists()
    assert (tmp_path / f"{PREFIX}young").exists()
    assert (tmp_path / "kept").exists()
    assert mine.path.exists()
    mine.remove()
    assert not mine.path.exists()
