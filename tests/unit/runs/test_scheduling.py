"""Polling threads yield only where they yield to their own world alone, and then all those of a world do."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from waiting import PATIENCE_S, comes_true, eventually

from arena.paths import Paths
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.machine import processes
from sandbox.machine.scheduling import POLLING, YIELDING, polling_gives_way, sessions_are_groups


def machine(folder: Path, enabled: str, cgroup: str) -> Path:
    """Writes a /proc folder with these values."""
    (folder / "sys/kernel").mkdir(parents=True)
    (folder / "sys/kernel/sched_autogroup_enabled").write_text(enabled)
    (folder / "self").mkdir()
    (folder / "self/cgroup").write_text(cgroup)
    return folder


@pytest.mark.parametrize(
    ("enabled", "cgroup", "groups"),
    [
        ("1\n", "0::/\n", True),
        ("1\n", "4:memory:/a/b\n1:cpu:/\n0::/\n", True),
        ("0\n", "0::/\n", False),
        ("1\n", "0::/user.slice/user-1000.slice\n", False),
        ("1\n", "2:cpu,cpuacct:/docker/abc\n0::/\n", False),
    ],
)
def test_sessions_are_groups_where_nothing_overrides_them(tmp_path, enabled, cgroup, groups):
    assert sessions_are_groups(machine(tmp_path, enabled, cgroup), tmp_path) is groups


def test_container_with_share_of_cores_overrides_them(tmp_path):
    (tmp_path / "cpu.weight").write_text("100\n")
    assert not sessions_are_groups(machine(tmp_path, "1\n", "0::/\n"), tmp_path)


def test_a_system_without_them_has_none(tmp_path):
    assert not sessions_are_groups(tmp_path, tmp_path)


@pytest.fixture
def polling() -> Iterator[int]:
    """The id of a thread of this process that is named like gloo's polling threads."""
    named, over = threading.Event(), threading.Event()

    def poll() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(POLLING)
        named.set()
        over.wait(PATIENCE_S)

    thread = threading.Thread(target=poll)
    thread.start()
    assert named.wait(PATIENCE_S)
    assert thread.native_id is not None
    yield thread.native_id
    over.set()
    thread.join()


def test_only_polling_threads_give_way(polling: int):
    polling_gives_way([os.getpid(), 1 << 22])
    assert os.sched_getscheduler(polling) == os.SCHED_IDLE
    assert os.sched_getscheduler(os.getpid()) != os.SCHED_IDLE


@pytest.mark.skipif(not sessions_are_groups(), reason="this machine does not schedule sessions as groups")
@pytest.mark.slow
async def test_timed_world_runs_and_yields_to_referee(paths: Paths):
    problem = load_catalogue().find("13")
    setting = choose_setting(problem, Choice(world=2, device="cpu"), Settings())
    async with Engine(paths) as engine:
        run = RunRequest(problem=problem, setting=setting, kernel_name="baseline", source="", rounds=1)
        await judge_to_end(engine, run)
        await comes_true(lambda: given_way(setting.world))


def given_way(world: int) -> bool:
    """Whether the reference world yields, and at least `world` polling threads do. The contender's have ended."""
    yielding = [group for group in groups_below() if group.endswith(f" nice {YIELDING}")]
    return len(yielding) >= 1 and policies_below().count(os.SCHED_IDLE) >= world


def groups_below() -> set[str]:
    """Returns the sessions, with their nice values, of the processes below this one, which may end meanwhile."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.add(Path(f"/proc/{process.pid}/autogroup").read_text().strip())
    return found


def policies_below() -> list[int]:
    """Returns the scheduling policies of the polling threads below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    if (task / "comm").read_text().strip() == POLLING:
                        found.append(os.sched_getscheduler(int(task.name)))
    return found


SPINS = """
import os, threading
os.sched_setaffinity(0, {%d})
def spin():
    while True: pass
threading.Thread(target=spin).start()
"""
"""Its first thread sleeps in the interpreter's end, until the other one ends."""


def test_waits_of_a_second_thread_count() -> None:
    argv = [sys.executable, "-c", SPINS % min(os.sched_getaffinity(0))]
    busy = [subprocess.Popen(argv) for _ in range(2)]
    gone = subprocess.Popen(["true"])
    gone.wait()
    try:
        waited = processes.waits_for_cores(lambda: [busy[0].pid, gone.pid])
        waited()
        eventually(lambda: waited() >= 0.1)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    before = waited()
    assert waited() == before > 0


def test_a_wait_counts_before_it_ends(tmp_path, monkeypatch):
    thread = tmp_path / "proc/7/task/8"
    thread.mkdir(parents=True)
    waited = processes.waits_for_cores(lambda: [7])
    monkeypatch.setattr(processes, "Path", lambda path: tmp_path / path.removeprefix("/"))
    found = []
    for now, state, used, ended in [(1, "R", 5, 0), (3, "R", 5, 0), (4, "S", 6, 3), (9, "S", 6, 3), (10, "R", 6, 3)]:
        (thread / "stat").write_text(f"8 (a) {state} 1")
        (thread / "schedstat").write_text(f"{used} {ended}000000000 1")
        monkeypatch.setattr(processes.time, "monotonic", lambda now=now: float(now))
        found.append(waited())
    assert found == [0, 2, 3, 3, 3]
