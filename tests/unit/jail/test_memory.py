"""The memory of a world where its mapped files cannot be read, and control groups that nobody owns any more."""

import mmap
import os
import subprocess
from pathlib import Path
from typing import Any

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
    os.close(file)
    with mmap.mmap(-1, 1 << 31):  # nothing of it is touched
        assert memory.held_bytes([os.getpid()]) > 1 << 31


def test_little_memory_is_not_added_up_exactly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exact, sizes = memory.held_bytes([os.getpid()]), memory._rollup(os.getpid())
    assert 0 < sizes["Pss"] <= sizes["Rss"]
    monkeypatch.delattr(memory, "_rollup")
    for limit in (1 << 40, None):
        assert memory.Bound(NONE, tmp_path, limit).excess([os.getpid()]) == ""
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
