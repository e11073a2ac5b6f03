"""The memory of a world where its mapped files cannot be read, and control groups that nobody owns any more."""

import mmap
import os
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from sandbox.jail import cgroup, memory
from sandbox.jail.profiles import NONE


def test_unreadable_mapping_counts_up_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        if "map_files" in str(path):
            raise PermissionError
        return read(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    before = memory._shared_memory(os.getpid(), set())
    file = os.memfd_create("arena")
    os.ftruncate(file, 8 * mmap.PAGESIZE)
    with mmap.mmap(file, 2 * mmap.PAGESIZE, offset=4 * mmap.PAGESIZE):
        assert memory._shared_memory(os.getpid(), set()) - before == 6 * mmap.PAGESIZE
    with mmap.mmap(-1, 1 << 31):  # nothing of it is touched
        assert memory.held_bytes([os.getpid()]) > 1 << 31
    monkeypatch.undo()
    before = memory._shared_memory(os.getpid(), set())
    os.pwrite(file, bytes(8 * mmap.PAGESIZE), 0)
    with mmap.mmap(file, 8 * mmap.PAGESIZE):
        assert memory._shared_memory(os.getpid(), set()) - before == 8 * mmap.PAGESIZE
    os.close(file)


def test_little_memory_is_not_added_up_exactly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exact, sizes = memory.held_bytes([os.getpid()]), memory._rollup(os.getpid())
    assert 0 < sizes["Pss"] <= sizes["Rss"]
    (tmp_path / "file").touch()
    monkeypatch.setattr(cgroup, "make", Mock(side_effect=cgroup.NoGroup))
    small, large = (memory.Bound(NONE, tmp_path, limit) for limit in (1 << 20, 1 << 40))
    assert "MiB together, more than the 1 MiB a world may have" in small.excess([os.getpid()])
    with patch.object(memory, "MOST_FILES", 0):
        assert large.excess([]) == "the ranks made more than 0 files"
    monkeypatch.delattr(memory, "_rollup")
    for bound in (large, memory.Bound(NONE, tmp_path, None)):
        assert bound.excess([os.getpid()]) == ""
    assert memory.held_bytes([os.getpid()], enough=1 << 40) >= exact > 0
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 16)  # the pages of some processors have 64 KiB
    assert memory.held_bytes([os.getpid()], enough=1 << 60) > 8 * exact


def test_a_world_gets_a_share_of_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PKB_WORLD_MEMORY", raising=False)
    assert 0.5 < memory.limit_bytes() / memory.free_bytes() < 0.7


def test_groups_of_ended_referees_alone_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cgroup._ancestors(os.getpid())[:2] == [os.getpid(), os.getppid()]
    removed: list[str] = []
    monkeypatch.setattr(cgroup.Group, "remove", lambda group: removed.append(group.path.name))
    (ended := subprocess.Popen(["true"])).wait()
    for name in (f"{ended.pid}-0", f"{os.getpid()}-0", "own", "own-1"):
        (tmp_path / f"pkb-arena-{name}").mkdir()
    cgroup._sweep(tmp_path)
    assert removed == [f"pkb-arena-{ended.pid}-0"]
