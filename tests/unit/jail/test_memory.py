"""The memory of a world where its mapped files cannot be read."""

import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.jail import memory
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


def test_little_memory_is_not_added_up_exactly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exact = memory.held_bytes([os.getpid()])
    monkeypatch.delattr(memory, "_rollup")
    assert memory.Bound(NONE, tmp_path, 1 << 40).excess([os.getpid()]) == ""
    assert memory.held_bytes([os.getpid()], enough=1 << 40) >= exact > 0
