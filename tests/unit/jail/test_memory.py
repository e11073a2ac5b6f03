"""The memory of a world where its mapped files cannot be read, and control groups that nobody owns any more."""

import mmap
import os
import re
import stat
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import psutil
import pytest

from sandbox.jail import cgroup, memory
from sandbox.jail.cgroup import Group
from sandbox.jail.memory import AgentUsage, Bound
from sandbox.jail.profiles import FULL, NONE, Caps


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
        assert memory._shared_memory(os.getpid(), seen := set()) - before == 6 * mmap.PAGESIZE
        assert memory._shared_memory(os.getpid(), seen) == 0  # as by another rank
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
    monkeypatch.setattr(memory, "_rollup", lambda pid: {"Pss": 5 << 40, "Pss_Shmem": 4 << 40})
    assert memory.held_bytes([os.getpid()]) == 5 << 40
    monkeypatch.delattr(memory, "_rollup")
    for bound in (large, memory.Bound(NONE, tmp_path, None)):
        assert bound.excess([os.getpid()]) == ""
    assert memory.held_bytes([os.getpid()], enough=1 << 40) >= exact > 0
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 16)  # the pages of some processors have 64 KiB
    assert memory.held_bytes([os.getpid()], enough=1 << 60) > 8 * exact


@pytest.mark.parametrize(("named", "limit"), [("1", memory.LEAST), (str(1 << 40), 1 << 40), ("much", None), ("", None)])
def test_a_world_gets_a_share_of_free_memory(monkeypatch: pytest.MonkeyPatch, named: str, limit: int | None) -> None:
    monkeypatch.setenv("PKB_WORLD_MEMORY", named)
    assert memory.free_bytes() == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    if limit is None:
        assert 0.4 < memory.limit_bytes() / memory.free_bytes() < 0.5
    else:
        assert memory.limit_bytes(5) == limit + 5


MIB = 1 << 20


def test_files_on_a_shared_disk_are_added_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("one", "sub/three", "deleted"):
        (tmp_path / name).write_bytes(bytes(MIB))
    (tmp_path / "sub/two").hardlink_to(tmp_path / "one")
    os.truncate(tmp_path / "sub/three", 1 << 40)  # which takes nothing
    read = os.readlink  # the first descriptor is closed meanwhile
    monkeypatch.setattr(os, "readlink", lambda path: read(f"{path}/closed" if path.endswith("/fd/0") else path))
    with (tmp_path / "deleted").open("rb"):
        (tmp_path / "deleted").unlink()
        found = []
        for files, size, pids in ((4, 2, []), (3, 2, []), (4, 1, []), (4, 3, [os.getpid()]), (4, 2, [os.getpid()])):
            monkeypatch.setattr(memory, "MOST_FILES", files)
            monkeypatch.setattr(memory, "TMPFS_BYTES", size * MIB)
            found.append(memory._too_much_on_disk(tmp_path, pids))
    take = "the ranks' files take {} MiB, more than the {} MiB a world may have"
    assert found == ["", "the ranks made more than 3 files", take.format(2, 1), "", take.format(3, 2)]


def test_folders_that_a_kernel_closed_are_opened(tmp_path: Path) -> None:
    outside, world = tmp_path / "outside", tmp_path / "world"
    (world / "a/b").mkdir(parents=True)
    outside.mkdir(mode=0o500)
    (world / "link").symlink_to(outside)
    (world / "a/b").chmod(0)
    (world / "a").chmod(0)
    for profile, modes in ((FULL, [0o500, 0]), (NONE, [0o500, 0o700])):
        assert Bound(profile, world, None).close()
        assert [stat.S_IMODE(path.stat().st_mode) for path in (outside, world / "a")] == modes
    assert stat.S_IMODE((world / "a/b").stat().st_mode) == 0o700


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """What the system tells of both mounts of a jail, whose root is `tmp_path` here. No group can be made."""
    facts = SimpleNamespace(f_blocks=16640, f_bfree=16640, f_frsize=4096, f_files=200_000, f_ffree=200_000)
    for name in memory.MOUNTS:
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(os, "statvfs", lambda path: path.relative_to(tmp_path) and facts)
    monkeypatch.setattr(os, "fstatvfs", lambda fd: facts)
    monkeypatch.setattr(memory, "own_root", lambda pids: tmp_path)
    monkeypatch.setattr(cgroup, "make", Mock(side_effect=cgroup.NoGroup))
    return facts


def test_files_in_mounts_of_a_world_count(mount: SimpleNamespace, tmp_path: Path) -> None:
    bound = Bound(FULL, tmp_path, MIB)
    before = memory.held_bytes([], memory.MOUNTS)
    mount.f_bfree -= 128
    assert (before, memory.held_bytes([], memory.MOUNTS), memory.held_bytes([])) == (0, MIB, 0)
    assert bound.excess([]) == ""
    mount.f_ffree -= memory.MOST_FILES_OF_MOUNT
    assert bound.excess([]) == ""
    mount.f_ffree -= 1
    assert bound.excess([]) == "the ranks made more than 100000 files"
    mount.f_bfree -= 128
    assert bound.excess([]) == "the ranks hold 2 MiB together, more than the 1 MiB a world may have"
    assert memory._mounts([], ()) == []


def test_an_agent_program_is_held_to_its_caps(mount: SimpleNamespace, tmp_path: Path, monkeypatch) -> None:
    descriptors, used = len(os.listdir("/proc/self/fd")), SimpleNamespace(threads=5, held=4 * MIB, seconds=2.0)
    monkeypatch.setattr(memory, "threads", lambda pids: used.threads)
    monkeypatch.setattr(memory, "held_bytes", lambda *_: used.held)
    monkeypatch.setattr(memory, "cpu_seconds_of_all", lambda pids: used.seconds)
    usage = AgentUsage(FULL, tmp_path, Caps(4 * MIB, 3, MIB, 2.0))
    mount.f_blocks += 2  # of what is mounted there while bubblewrap builds the jail
    mount.f_bfree -= 1000
    assert (usage.excess(0), usage.left_behind()) == ("", "")
    mount.f_blocks, mount.f_bfree = 16640, 16640
    assert usage.excess(0) == ""
    for facts, name, change, words in (
        (used, "threads", 1, "processes: it has 4 processes and threads, more than the 3 it may have"),
        (used, "held", MIB, "memory: its processes hold 5 MiB together, more than the 4 MiB it may have"),
        (used, "seconds", 1, "CPU time: its processes have used 3 s, more than the 2 s they may have"),
        (mount, "f_bfree", -257, "disk: its files in /tmp take 1 MiB, more than the 1 MiB it may have"),
        (mount, "f_ffree", -memory.MOST_FILES_OF_MOUNT - 1, "disk: it made more than 100000 files in /tmp"),
    ):
        setattr(facts, name, getattr(facts, name) + change)
        assert (usage.excess(0), usage.left_behind()) == (words, words if facts is mount else "")
        setattr(facts, name, getattr(facts, name) - change)
    mount.f_bfree -= 256
    mount.f_ffree -= memory.MOST_FILES_OF_MOUNT
    assert usage.excess(0) == ""
    usage.close()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_processes_outside_a_jail_have_no_root() -> None:
    (ended := subprocess.Popen(["true"])).wait()
    assert memory.own_root([ended.pid, os.getpid()]) is None


def test_groups_of_ended_referees_alone_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cgroup._ancestors(os.getpid())[:2] == [os.getpid(), os.getppid()]
    removed: list[str] = []
    monkeypatch.setattr(cgroup.Group, "remove", lambda group: removed.append(group.path.name))
    (ended := subprocess.Popen(["true"])).wait()
    assert (cgroup._ancestors(ended.pid), cgroup._ancestors(1)) == ([ended.pid], [1])
    for name in (f"{ended.pid}-0", f"{ended.pid}-1", f"{os.getpid()}-0", "own", "own-1"):
        (tmp_path / f"pkb-arena-{name}").mkdir()
    (tmp_path / f"pkb-arena-{ended.pid}-1/cgroup.procs").write_text("0\n7\n")  # of another PID namespace
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


def test_sockets_count_against_their_own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, sockets = Bound(NONE, tmp_path, 1 << 50), tmp_path / "net/tcp6"
    sockets.parent.mkdir()
    monkeypatch.setattr(memory, "connected_pages", lambda: 1 << 40)  # of all programs of the machine
    with subprocess.Popen(["true"]) as ended:  # a world's last process may have ended, and nobody waits for it
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        for many, queued, refused in ((65, 1, True), (2, 1 << 60, True), (64, 1, False)):
            sockets.write_text("head\n" + f"0: here there 01 {queued:08X}:00000000 0\n" * many)
            found = bound.excess([f"..{tmp_path}", ended.pid])
            assert found.startswith("out of memory for connections") is refused
        assert bound.excess([ended.pid]) == ""


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
    monkeypatch.setattr(memory, "held_bytes", lambda pids, private, enough: 0 if private else 3 << 20)
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
    with patch.object(memory, "MOST_FILES", 0):
        assert usage.excess(os.getpid()) == "memory: the ranks made more than 0 files"
    for gone in (True, False):
        monkeypatch.setattr(Group, "remove", lambda group, gone=gone: gone)
        assert small.close() is gone


LIMITED = ["memory.max 7", "memory.swap.max 0"]


@pytest.mark.parametrize(
    ("limit", "refused", "found"),
    [
        *((None, "memory.max", ["memory.oom.group 1"]), (7, "memory.oom.group", [*LIMITED, "memory.oom.group 1"])),
        *((7, name, [*LIMITED, "removed"]) for name in ("memory.max", "memory.swap.max")),
    ],
)
def test_memory_that_cannot_be_limited_makes_no_group(tmp_path, monkeypatch, limit, refused, found) -> None:
    def write(path: Path, text: str) -> bool:
        done.append(f"{path.name} {text}")
        (path.parent / "memory.swap.max").touch()
        return path.name != refused

    done: list[str] = []
    monkeypatch.setattr(cgroup, "_write", write)
    monkeypatch.setattr(Group, "remove", lambda group: done.append("removed"))
    with pytest.raises(cgroup.NoGroup, match="cannot be limited") if "removed" in found else nullcontext():
        assert cgroup._make(tmp_path, limit).path.is_dir()
    assert done == found


def test_own_group_is_found_below_its_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scope").mkdir()
    mounts = f"30 1 0:26 / /sys rw - sysfs sysfs rw\n31 30 0:27 /box {tmp_path} rw shared:4 - cgroup2 cgroup2 rw\n"
    files = {"mountinfo": mounts}
    monkeypatch.setattr(cgroup, "_read", lambda path: files[path.name])
    for group, own in (("/box/scope", tmp_path / "scope"), ("/box", tmp_path), ("/box/gone", None), ("/", None)):
        files["cgroup"] = f"1:cpu:/other\n0::{group}\n"
        if own is not None:
            assert cgroup._own_group() == (tmp_path, own)
            continue
        with pytest.raises(cgroup.NoGroup, match="lies outside"):
            cgroup._own_group()
    files["mountinfo"] = mounts.partition("\n")[0]
    with pytest.raises(cgroup.NoGroup, match=r"no cgroup v2 is mounted"):
        cgroup._own_group()


def test_group_is_entered_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "REMOVE_SECONDS", 0.0)
    group = Group(tmp_path / "own")
    assert group.remove()  # it is gone already
    group.path.mkdir()
    done = subprocess.run(group.starts(["/bin/echo", "$0", "a b"]), capture_output=True, check=True)
    assert (done.stdout, (group.path / "cgroup.procs").read_text()) == (b"$0 a b\n", "0\n")
    descriptors = len(os.listdir("/proc/self/fd"))
    (group.path / "memory.current").write_text("7")
    assert group.memory() == 7
    assert not group.remove()  # processes are left
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize(
    ("counted", "controllers", "fit", "found"),
    [
        (False, "", ["own"], "own"),
        (True, "cpu memory", ["own", "above"], "own"),
        (True, "cpu memory", ["above"], "above"),
        (True, "cpu memory", [], "own cannot have a group with a bound on memory (start in a scope: "),
        (True, "cpu", ["own"], "cgroup v2 does not have the memory controller here"),
        (False, "", [], "no group here"),
    ],
)
def test_first_place_that_works_is_taken(monkeypatch, tmp_path: Path, counted, controllers, fit, found) -> None:
    limits = []

    def tested(parent: Path, limit: int | None) -> Path:
        limits.append(limit)
        if str(parent) not in fit:
            raise cgroup.NoGroup("no group here")
        return parent

    (tmp_path / "cgroup.controllers").write_text(controllers)
    monkeypatch.setattr(cgroup, "_own_group", lambda: (tmp_path, Path("own")))
    monkeypatch.setattr(cgroup, "_candidates", lambda root, own: [own, Path("above")])
    monkeypatch.setattr(cgroup, "_tested", tested)
    where = cgroup.place.__wrapped__(counted)
    assert where == Path(found) if isinstance(where, Path) else where.startswith(found)
    assert set(limits) <= {64 * MIB if counted else None}
    monkeypatch.setattr(cgroup, "place", lambda counted: where)
    monkeypatch.setattr(cgroup, "_make", lambda parent, limit: (parent, limit))
    told = memory.described()
    if isinstance(where, Path):
        assert cgroup.make(5, counted) == (where, 5)
        assert f"a control group per world in {found}), at most " in told
    else:
        with pytest.raises(cgroup.NoGroup, match=re.escape(where)):
            cgroup.make(5, counted)
        assert re.fullmatch(rf"watched from outside, at most \d+\.\d GiB .* \({re.escape(where)}\)", told)


@pytest.mark.parametrize(
    ("start", "files", "words"),
    [
        ("true", {"cgroup.freeze": "0", "cpu.stat": "usage_usec 5"}, None),
        ("true", {"cpu.stat": "usage_usec 5"}, "cannot be frozen"),
        ("true", {"cgroup.freeze": "0", "cpu.stat": ""}, "cannot be frozen"),
        ("false", {"cgroup.freeze": "0", "cpu.stat": "usage_usec 5"}, "returned non-zero exit status 1"),
    ],
)
def test_place_is_tried_with_a_process(tmp_path: Path, monkeypatch, start, files, words) -> None:
    done: list[Any] = []
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cgroup, "_make", lambda parent, limit: done.append((parent, limit)) or Group(tmp_path))
    monkeypatch.setattr(Group, "starts", lambda group, argv: [f"/bin/{start}", *argv])
    monkeypatch.setattr(Group, "remove", lambda group: done.append("removed"))
    monkeypatch.setattr(cgroup, "_sweep", lambda parent: done.append("swept"))
    if words is None:
        assert cgroup._tested(tmp_path, 7) == tmp_path
    else:
        with pytest.raises(cgroup.NoGroup, match=words):
            cgroup._tested(tmp_path, 7)
    assert done == [(tmp_path, 7), "removed", *(["swept"] if words is None else [])]


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
