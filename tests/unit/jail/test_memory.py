"""The memory of a world where its mapped files cannot be read, and control groups that nobody owns any more."""

import mmap
import os
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from sandbox.jail import cgroup, memory
from sandbox.jail.cgroup import Group
from sandbox.jail.memory import AgentUsage, Bound
from sandbox.jail.profiles import NONE, Caps


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


# --- Control groups whose files are made here: what they count, where a new one is made, and what it bounds ---


FILES = {
    "memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "memory.current": "4096\n",
    "cgroup.events": "populated 1\nfrozen 1\n",
    "cgroup.freeze": "0",
    "cgroup.procs": "5\n7\n",
}


@pytest.fixture
def group(tmp_path: Path) -> Group:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return Group(tmp_path)


def test_a_group_tells_what_the_kernel_counts(group: Group) -> None:
    assert (group.kills(), group.cpu_seconds(), group.memory(), group.pids()) == (2, 2.5, 4096, [5, 7])
    assert group.frozen
    for frozen in (True, False):
        group.set_frozen(frozen)
        assert (group.path / "cgroup.freeze").read_text() == str(int(frozen))
    group.kill()
    assert (group.path / "cgroup.kill").read_text() == "1"
    gone = Group(group.path / "gone")
    gone.set_frozen(True)
    assert (gone.kills(), gone.memory(), gone.pids()) == (0, 0, [])


@pytest.mark.parametrize("counted", [True, False])
def test_who_counts_memory_depends_on_the_group(
    group: Group, counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(limit: int | None, counted: bool) -> Group:
        if counted and not has_controller:
            raise cgroup.NoGroup
        return group

    has_controller = counted
    monkeypatch.setattr(cgroup, "make", make)
    monkeypatch.setattr(memory, "held_bytes", lambda *_: 3 << 20)
    small, large, trusted = (Bound(NONE, tmp_path, limit) for limit in (2 << 20, 4 << 20, None))
    ended = "the ranks asked for more than the {} MiB a world may have; the operating system has ended them"
    held = "the ranks hold 3 MiB together, more than the 2 MiB a world may have"
    assert small.excess([]) == (ended.format(2) if counted else held)
    assert large.excess([]) == large.killed() == (ended.format(4) if counted else "")
    assert trusted.excess([]) == trusted.killed() == ""
    (tmp_path / "memory.events").write_text("oom_kill 0\n")
    assert large.excess([]) == small.killed() == ""
    monkeypatch.setattr(memory, "cpu_seconds_of_all", lambda pids: 9.0)
    usage = AgentUsage(NONE, tmp_path, Caps(4 << 20, 1 << 20, 1 << 20, 2.0))
    assert "have used 2 s, more than the 2 s" in usage.excess(os.getpid())


def test_memory_that_cannot_be_limited_makes_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_write", lambda path, text: path.name != "memory.max")
    assert cgroup._make(tmp_path, None).path.is_dir()
    with pytest.raises(cgroup.NoGroup, match="its memory cannot be limited"):
        cgroup._make(tmp_path, 1)
    assert len(list(tmp_path.iterdir())) == 1


def write(path: Path, text: str) -> bool:
    """Does what the kernel does with a text."""
    if path.name == "cgroup.procs":
        left = path.parents[1] / path.name
        left.write_text(left.read_text().replace(text, ""))
    path.write_text(text.removeprefix("+"))
    return True


@pytest.mark.parametrize(
    ("own", "above", "more", "places"),
    [
        ("cpu memory", "cpu", {}, ["own", "own"]),
        ("", "memory", {}, ["above", "own"]),
        ("", "memory", {"memory.max": "4096"}, ["own"]),
        ("", "memory", {"cgroup.procs": "0"}, ["above"]),
        ("", "", {"cgroup.procs": str(os.getppid())}, ["own"]),
        ("", "", {"cgroup.procs": "0"}, []),
        ("", "", {"cgroup.procs": "0", "delegated": "1"}, []),
        ("", "memory", {"delegated": "0"}, ["above", "own"]),
        ("", "memory", {"delegated": "1"}, ["own", "above", "own"]),
        ("", "", {"cgroup.procs": "0", "cgroup.type": None}, ["own"]),
    ],
)
def test_worlds_go_where_memory_can_be_divided(own, above, more, places, tmp_path, monkeypatch) -> None:
    group = tmp_path / "above" / "own"
    group.mkdir(parents=True)
    for path, divided in ((group, own), (group.parent, above)):
        usual = {"cgroup.type": "domain", "memory.max": "max", "cgroup.procs": "", "cgroup.subtree_control": divided}
        for name, text in (usual | (more if path == group else {})).items():
            if text is not None:
                (path / name).write_text(text)
    monkeypatch.setattr(cgroup, "_write", write)
    monkeypatch.setattr(os, "getxattr", lambda path, name: (path / "delegated").read_bytes())
    assert [path.name for path in cgroup._candidates(tmp_path, group)] == places
