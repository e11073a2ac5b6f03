"""Leases: one match at a time on a device, among the arenas of all users."""

import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from waiting import eventually

from sandbox.machine import processes
from sandbox.protocol.events import Setting
from sandbox.referee import lease
from sandbox.referee.lease import MOST_NOTES, Lease, Urgency, devices_of


def setting(world: int, device: str) -> Setting:
    return Setting(problem_dir="", preset="tiny", sizes={}, dtype="float32", world=world, device=device)


def test_devices_are_leased_once_and_never_in_part(tmp_path: Path) -> None:
    first, second, third = (Lease(names, tmp_path) for names in (["gpu-1", "gpu-2"], ["gpu-1", "gpu-0"], ["gpu-0"]))
    assert first.take()
    assert not second.take()
    assert third.take()
    first.close()
    third.close()
    assert second.take()
    second.close()
    assert not os.listdir(tmp_path / f"pkb-arena-notes-{os.getuid()}")


BECOME = """
import ctypes, os, sys, time
from pathlib import Path
from types import SimpleNamespace
from sandbox.referee.lease import Lease, Urgency
if uid := int(sys.argv[1]):  # not at its start: another user may not read this Python's files
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # visible with its own uid, as after an exec
folder = Path(sys.argv[2])
"""


class OtherArena:
    """Another process that takes a lease, or waits for it, as a command tells."""

    CODE = """
lease = Lease(["cores"], folder, Urgency(int(sys.argv[3])))
for line in sys.stdin:
    match line.strip():
        case "take": print(lease.take(sys.argv[4]), flush=True)
        case "wait":
            while not lease.take(sys.argv[4]): time.sleep(0.02)
            print(True, flush=True)
        case "way": lease.give_way(); print(True, flush=True)
"""

    def __init__(self, folder: Path, urgency: Urgency = Urgency.PERSON, problem: str = "theirs", uid: int = 0) -> None:
        command = [sys.executable, "-c", BECOME + self.CODE, str(uid), str(folder), str(int(urgency)), problem]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, command: str) -> None:
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def ask(self, command: str) -> bool:
        self.tell(command)
        return self.answer()

    def answer(self) -> bool:
        return self.process.stdout.readline() == "True\n"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Callable[..., OtherArena]]:
    started: list[OtherArena] = []

    def start(*args: Any) -> OtherArena:
        started.append(OtherArena(tmp_path, *args))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_who_has_device_is_told_by_kernel(tmp_path: Path, arena: Callable[..., OtherArena]) -> None:
    other, mine = arena(), Lease(["cores"], tmp_path)
    assert other.ask("take")
    assert not mine.take("allreduce")
    holder = mine.holder()
    assert (holder.pid, holder.problem) == (other.process.pid, "theirs")
    assert holder.user == pwd.getpwuid(os.getuid()).pw_name
    other.end()
    assert mine.holder() is None
    assert mine.take()


def test_people_go_before_sweeps_and_sweeps_before_background(tmp_path: Path, arena: Callable[..., OtherArena]) -> None:
    mine = Lease(["cores"], tmp_path, Urgency.SWEEP)
    assert mine.take()
    background, person = arena(Urgency.BACKGROUND), arena(Urgency.PERSON)
    background.tell("wait")
    eventually(lambda: len(mine._others()) == 1)
    assert not mine.is_wanted()
    person.tell("wait")
    eventually(mine.is_wanted)
    mine.give_way()
    assert person.answer()
    assert not mine.take()
    assert mine.place() == (1, 2)
    person.end()
    eventually(mine.take)
    mine.close()
    assert background.answer()


def test_waiting_note_without_writer_delays_a_second(tmp_path: Path, arena: Callable[..., OtherArena]) -> None:
    mine, other = Lease(["cores"], tmp_path, Urgency.SWEEP), arena(Urgency.PERSON)
    assert other.ask("take")
    assert other.ask("way")
    assert not mine.take()
    eventually(mine.take)  # the note itself would keep it away as long as its writer lives
    mine.give_way()
    assert other.ask("take")
    assert not mine.take()
    assert mine.holder().pid == other.process.pid


@pytest.mark.parametrize(("share", "passed"), [(0.5, [5.0]), (3.0, [])], ids=["idle", "works"])
def test_only_an_idle_holders_lock_is_passed_by(
    share: float, passed: list[float], tmp_path: Path, arena: Callable[..., OtherArena], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, mine, now = arena(), Lease(["cores"], tmp_path), 0.0
    assert other.ask("take")
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: now))
    work = {0.0: 0.0, 0.5: 0.05, 3.0: 0.1, 5.0: 0.1}
    """CPU seconds of all its processes until a second, at the share that still is idle."""
    monkeypatch.setattr(processes, "cpu_seconds_of_all", lambda pids: work[now] * share * (other.process.pid in pids))
    found = []
    for now in work:
        found += [now] * mine.pass_by_idle()
    assert found == passed
    assert mine.passed.startswith(f"process {other.process.pid} of " if passed else "")
    monkeypatch.setattr(mine, "_holders", lambda: {other.process.pid, os.getpid()})
    assert not mine.pass_by_idle()  # the second one was not watched yet


BAD_NOTES = {
    "future": b'{"devices": ["cores"], "urgency": 0, "since": 9e10}',
    "endless": b'{"devices": ["cores"], "urgency": 0, "since": 1e300}',
    "no number": b'{"devices": ["cores"], "urgency": 0, "since": NaN}',
    "urgent": b'{"devices": ["cores"], "urgency": -7, "since": 1.0}',
    "deep": b"[" * 100_000,
    "long": b'{"devices": ["cores"], "urgency": 0, "since": 1.0, "problem": "' + b"x" * 300 + b'"}',
    "words": b"no note",
}


@pytest.fixture
def other() -> Iterator[int]:
    """A process of this user. The one that started the tests may be root's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("text", BAD_NOTES.values(), ids=BAD_NOTES)
def test_a_forged_note_counts_for_nothing(tmp_path: Path, text: bytes, other: int) -> None:
    notes = tmp_path / f"pkb-arena-notes-{os.getuid()}"
    notes.mkdir()
    (notes / str(other)).write_bytes(text)
    mine = Lease(["cores"], tmp_path, Urgency.SWEEP)
    assert mine.take()
    assert not mine.is_wanted()


def test_notes_of_dead_processes_and_links_are_ignored(tmp_path: Path, other: int) -> None:
    notes, number = tmp_path / f"pkb-arena-notes-{os.getuid()}", str(other)
    notes.mkdir()
    good = b'{"devices": ["cores"], "urgency": 0, "since": %f}' % time.time()
    for dead in range(4_195_000, 4_195_200):  # above the highest process id
        (notes / str(dead)).write_bytes(good)
    mine = Lease(["cores"], tmp_path, Urgency.SWEEP)
    assert not mine.is_wanted()
    (tmp_path / "elsewhere").write_bytes(good)
    for make in (os.mkfifo, lambda note: os.symlink(tmp_path / "elsewhere", note)):
        make(notes / number)
        assert not mine.is_wanted()
        (notes / number).unlink()
    began = psutil.Process(other).create_time()
    for since, urgency, counts in ((began - 70, 0, False), (began - 50, 1, False), (began - 50, 0, True)):
        (notes / number).write_bytes(b'{"devices": ["cores"], "urgency": %d, "since": %f}' % (urgency, since))
        assert mine.is_wanted() is counts  # the first is of an earlier process
    with patch.object(lease, "_uid_of", {other: STRANGER}.get):
        assert not mine.is_wanted()
    if os.getuid() == 0:
        os.chown(notes, STRANGER, STRANGER)
        assert not mine.is_wanted()


def test_notes_of_one_user_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, read = tmp_path / f"pkb-arena-notes-{os.getuid()}", []
    notes.mkdir()
    for number in range(1000):
        (notes / str(number)).touch()
    monkeypatch.setattr(lease, "_uid_of", lambda pid: os.getuid())
    monkeypatch.setattr(lease, "_read", read.append)
    assert not Lease(["cores"], tmp_path).is_wanted()
    assert len(read) == MOST_NOTES


def test_lock_that_its_owner_replaces_is_opened_again(tmp_path: Path) -> None:
    first, second = Lease(["cores"], tmp_path), Lease(["cores"], tmp_path)
    (tmp_path / "pkb-arena-lease-cores").unlink()
    (tmp_path / "pkb-arena-lease-cores").touch()
    assert first.take()
    assert not second.take()
    assert not Lease(["cores"], tmp_path).take()
    (tmp_path / "pkb-arena-lease-cores").unlink()
    (tmp_path / "pkb-arena-lease-cores").mkdir()
    with pytest.raises(OSError, match="no plain file"):
        first.take()
    first.close()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lock_is_a_plain_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "pkb-arena-lease-cores"
    match kind:
        case "link":
            path.symlink_to(tmp_path / "target")
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(OSError, match="pkb-arena-lease-cores"):
        Lease(["cores"], tmp_path)


def test_a_folder_that_others_may_change_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="sticky bit"):
        Lease(["cores"], tmp_path)
    tmp_path.chmod(0o1777)
    assert Lease(["cores"], tmp_path).take()


STRANGER = 54_321
"""The uid of a second user. The kernel asks for no name of it."""
AS_STRANGER = """
now, notes = str(time.time()), "pkb-arena-notes-"
good = '{"devices": ["cores"], "urgency": 0, "since": %s}' % now
mine, roots = folder / f"{notes}{uid}", folder / f"{notes}0"
match sys.argv[3]:
    case "forged":
        mine.mkdir()
        for number in range(int(sys.argv[4])):
            (mine / str(number)).write_text(good.replace(now, "1e300") if number % 2 else "[" * 9000)
    case "pipe":
        mine.mkdir()
        os.mkfifo(mine / str(os.getppid()))
    case "of root":
        roots.mkdir()
        (roots / str(os.getppid())).write_text(good)
"""
two_users = pytest.mark.skipif(os.getuid() != 0, reason="only root can be a second user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that both users can write to, like /tmp. (The folder of `tmp_path` is closed to others.)"""
    with tempfile.TemporaryDirectory(prefix="pkb-lease-") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def as_stranger(folder: Path, *what: str) -> None:
    subprocess.run([sys.executable, "-c", BECOME + AS_STRANGER, str(STRANGER), folder, *what], check=True)


@two_users
@pytest.mark.parametrize("harm", [("forged", "200"), ("pipe",), ("of root",)], ids=" ".join)
def test_another_user_cannot_hold_a_run_up(shared: Path, harm: list[str]) -> None:
    as_stranger(shared, *harm)
    mine = Lease(["cores"], shared, Urgency.SWEEP)
    assert mine.take()
    assert not mine.is_wanted()
    assert mine.place() == (1, 1)


@two_users
def test_two_users_take_turns_unless_one_idles(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "WATCHED_S", 0.3)
    other, mine = OtherArena(shared, uid=STRANGER), Lease(["cores"], shared, Urgency.SWEEP)
    try:
        assert other.ask("take")
        assert not mine.take()
        holder = mine.holder()
        assert (holder.pid, holder.user) == (other.process.pid, f"user {STRANGER}")
        eventually(mine.pass_by_idle)
        assert mine.passed == f"process {other.process.pid} of user {STRANGER}"
        assert other.ask("way")
        eventually(mine.take)
        other.tell("wait")
        mine.close()
        assert other.answer()
    finally:
        other.end()


@two_users
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o1777)
    os.chown(folder, STRANGER, STRANGER)
    with pytest.raises(PermissionError, match="must belong to root or to you"):
        Lease(["cores"], folder)


def test_gpus_are_named_as_the_driver_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices_of(setting(2, "cuda")) == ["gpu-0", "gpu-1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert devices_of(setting(2, "cuda")) == ["gpu-3", "gpu-1"]
    assert devices_of(setting(2, "cpu")) == ["cores"]
