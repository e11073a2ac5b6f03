"""After kill -9 of the app or its referee at any moment, no process is left, and every journal and the index open."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest
from real_terminal import end
from waiting import PATIENCE_S

from arena.errors import KernelsLocked
from arena.paths import Paths
from arena.records.header import read_events, read_header
from arena.records.index import Store
from arena.settings import Settings, save_settings
from arena.workspace.kernels import KernelLocks, Workspace
from problems.catalogue import load_catalogue
from sandbox.machine.processes import runs
from sandbox.protocol.events import Finished
from sandbox.protocol.verdict import Verdict

SEED = int(os.environ.get("PKB_KILL_SEED", "0")) or time.time_ns() % 1_000_000
"""Read at import, because tests run with a bare environment."""
MOMENTS_S = 6.0
"""The latest kill, counted from the app's start. Until then worlds start, get ready, and judge a few saves."""
MARK = "NCCL_PKB_KILLED"
"""NCCL_ variables are passed on to every world. This one identifies the app's processes."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def moments(first: int, number: int, long: int) -> list[Any]:
    """Numbers of random moments, which differ in every session. The last `long` of them run only in `make test-all`."""
    numbers = range(first, first + number)
    return [*numbers[: number - long], *(pytest.param(n, marks=pytest.mark.long) for n in numbers[number - long :])]


class App:
    """The app in a pseudo-terminal. Its output is discarded."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.process = pexpect.spawn(
            sys.executable,
            ["-P", "-m", "screens.main", "1"],
            dimensions=(45, 160),
            env=os.environ | {"TERM": "xterm-256color", MARK: mark},
        )

    def let(self, seconds: float) -> None:
        """Reads the app's output for this long: if nobody reads it, the app blocks."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self.process.read_nonblocking(1 << 16, timeout=min(left, 0.1))
            except (pexpect.TIMEOUT, pexpect.EOF):
                continue

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Lets the app run until `true()`, and fails after PATIENCE_S. what: the message then."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline, f"{what} (PKB_KILL_SEED={SEED})"
            self.let(0.1)

    def processes(self, *named: str) -> list[int]:
        """The app and all processes started from it, no zombies. named: texts that the command line must contain."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == self.mark:
                    command = " ".join(process.cmdline())
                    if all(name in command for name in named):
                        found.append(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def referees(self) -> list[int]:
        """The referee: it hides its environment from other users, not from the one that started it."""
        children = psutil.Process(self.process.pid).children()
        return [child.pid for child in children if "sandbox.referee.main" in " ".join(child.cmdline())]


@pytest.fixture
def kernel(paths: Paths) -> Path:
    """The kernel file of problem 1, written before the app starts. The settings are for two CPU ranks."""
    save_settings(Settings(device="cpu", world=2, live_s=0, seconds=0.1), paths)
    problem = load_catalogue().find("1")
    return Workspace(paths.workspace).create(problem, problem.baseline_source)


@pytest.fixture
def app(kernel: Path, tmp_path: Path) -> Iterator[App]:
    app = App(mark=str(tmp_path))
    yield app
    end(app.process)


def can_be_locked(workspace: Path) -> bool:
    """Whether the kernels can be locked. Right after a kill, a zombie's last threads may still hold the lock."""
    locks = KernelLocks(workspace)
    try:
        locks.take("01_allreduce")
        locks.release("01_allreduce")
    except KernelsLocked:
        return False
    return True


def save(kernel: Path, revision: int) -> str:
    """Replaces the kernel file atomically by a new revision; returns its source."""
    source = load_catalogue().find("1").baseline_source + f"# revision {revision}\n"
    other = kernel.with_suffix(".new")
    other.write_text(source)
    other.replace(kernel)
    return source


def work_until_a_random_moment(app: App, kernel: Path, number: int) -> None:
    moment = random.Random(SEED + number).uniform(0.5, MOMENTS_S)
    print(f"PKB_KILL_SEED={SEED}, moment {number}: {moment:.2f} s")
    until = time.monotonic() + moment
    revision = 0
    while (left := until - time.monotonic()) > 0:
        app.let(min(left, 1.5))
        save(kernel, revision := revision + 1)


def journals_open(paths: Paths) -> list[tuple[str, Verdict]]:
    """Reads everything on disk; returns the source and verdict of every finished run."""
    finished = []
    for journal in sorted(paths.runs.glob("*.jsonl")):
        if not journal.stat().st_size:
            continue  # killed after the file was made, before its first line
        header = read_header(journal)
        whole = journal.read_bytes().split(b"\n")[:-1]
        assert [json.loads(line) for line in whole]
        events = list(read_events(journal))
        assert len(events) >= len(whole) - 1  # more if the run still writes it
        finished += [(header.source, event.result.verdict) for event in events if isinstance(event, Finished)]
    store = Store(paths.database, paths.runs)
    store.standings()
    store.close()
    return finished


@pytest.mark.parametrize("number", moments(0, 6, long=5))
def test_killed_app_leaves_no_process_and_whole_journals(app: App, kernel: Path, paths: Paths, number: int) -> None:
    app.until(lambda: bool(app.processes()), "the app did not start")
    work_until_a_random_moment(app, kernel, number)
    started = app.processes()
    assert app.process.pid in started
    app.process.kill(signal.SIGKILL)
    app.until(lambda: not app.processes() and not any(map(runs, started)), "processes are left")
    journals_open(paths)
    app.until(lambda: can_be_locked(paths.workspace), "the workspace stays locked")


@pytest.mark.further
@pytest.mark.parametrize("number", moments(6, 3, long=2))
def test_the_app_outlives_its_referee(app: App, kernel: Path, paths: Paths, number: int) -> None:
    app.until(lambda: bool(app.referees()), "no referee")
    work_until_a_random_moment(app, kernel, number)
    (referee,) = app.referees()
    worlds = app.processes("sandbox.rank.")
    os.kill(referee, signal.SIGKILL)
    app.until(lambda: not any(map(runs, [referee, *worlds])), "its worlds are left")
    source = save(kernel, 1000)
    app.until(lambda: (source, Verdict.PASS) in journals_open(paths), "no verdict after the referee was killed")
    assert app.referees() not in ([], [referee])
