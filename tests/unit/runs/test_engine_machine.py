"""The engine under any sequence of requests, cancels and kills: every run ends exactly once, also in its journal."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from fixed_examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from scripted_referee import COMMAND
from waiting import PATIENCE_S, comes_true

import arena.runs.engine
import arena.runs.referee_process
from arena.paths import Paths, paths_in
from arena.records.header import read_events
from arena.runs.engine import Engine
from arena.runs.judge import RunInProgress, RunRequest, Terminal, judge_to_end
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.machine import processes
from sandbox.machine.scheduling import LOWEST, POLLING, sessions_are_groups, settle_ranks
from sandbox.protocol.events import AnyEvent

PROBLEM = load_catalogue().find("13")
SETTING = choose_setting(PROBLEM, Choice(world=2, device="cpu"), Settings())
SOURCES = st.sampled_from(["pass", "wait", "wait", "wrong", "refuse", "die", "garbage", "fatal", "hang"])
"""Kernels for the scripted referee."""
WITHIN_S = PATIENCE_S


class Course(RuleBasedStateMachine):
    """One engine with its referees, in an event loop that runs only during steps."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.paths = paths_in(Path(self.folder))
        self.loop = asyncio.Runner()
        self.faults: list[dict[str, Any]] = []
        self.loop.get_loop().set_exception_handler(lambda _, context: self.faults.append(context))
        self.engine = Engine(self.paths, command=COMMAND)
        self.ends: Counter[str] = Counter()
        self.runs: list[RunInProgress] = []
        self.engine.subscribe(self.hear)
        self.do(asyncio.sleep(0))

    def hear(self, event: AnyEvent) -> None:
        if isinstance(event, Terminal):
            self.ends[event.run_id] += 1

    def do(self, *work: Coroutine[Any, Any, Any]) -> None:
        async def together() -> None:
            async with asyncio.timeout(WITHIN_S):
                await asyncio.gather(*work)

        self.loop.run(together())

    async def judge(self, source: str) -> None:
        request = RunRequest(problem=PROBLEM, setting=SETTING, kernel_name="kernel.py", source=source)
        self.runs.append(await self.engine.judge(request))

    async def give_up_asking(self, source: str, after_s: float) -> None:
        """Requests a run and gives up after `after_s`. If the run had started, only its journal shows it."""
        asking = asyncio.create_task(self.judge(source))
        await asyncio.sleep(after_s)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    @rule(sources=st.lists(SOURCES, min_size=1, max_size=3))
    def ask(self, sources: list[str]) -> None:
        self.do(*map(self.judge, sources))

    @rule(source=SOURCES, after_s=st.sampled_from([0.0, 0.001, 0.02]))
    def ask_and_leave(self, source: str, after_s: float) -> None:
        self.do(self.give_up_asking(source, after_s))

    @rule()
    def cancel(self) -> None:
        self.do(self.engine.cancel())

    @rule(source=SOURCES)
    def cancel_while_asking(self, source: str) -> None:
        self.do(self.judge(source), self.engine.cancel())

    @rule(which=st.integers(0, 9))
    def cancel_one(self, which: int) -> None:
        if which < len(self.runs):
            self.do(self.runs[which].cancel())

    @rule()
    def kill_the_referee(self) -> None:
        referee = self.engine._referee
        if referee is not None and referee.alive:
            with suppress(ProcessLookupError):
                os.kill(referee.pid, signal.SIGKILL)

    @rule()
    def let_it_work(self) -> None:
        self.do(asyncio.sleep(0.02))

    @rule()
    def wait_for_the_last(self) -> None:
        if self.runs:
            self.do(self.runs[-1].end())

    @rule()
    def close(self) -> None:
        """Closes the engine. Requests after that end at once."""
        self.do(self.engine.close())

    @invariant()
    def no_run_ended_twice(self) -> None:
        assert not [run_id for run_id, times in self.ends.items() if times != 1]
        assert len([run for run in self.runs if not run.ended]) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        try:
            self.do(self.engine.close())
            self.check_journals()
            assert self.engine.running is None
            assert self.faults == []
        finally:
            self.loop.close()
            shutil.rmtree(self.folder)

    def check_journals(self) -> None:
        journals = {path.stem: list(read_events(path)) for path in self.paths.runs.glob("*.jsonl")}
        assert dict.fromkeys(journals, 1) == dict(self.ends)
        assert {run.run_id for run in self.runs} <= set(journals)
        for events in journals.values():
            assert [isinstance(event, Terminal) for event in events] == [False] * (len(events) - 1) + [True]
        for run in self.runs:
            assert run.ended
            assert self.loop.run(run.end()) == journals[run.run_id][-1]


@pytest.mark.slow
def test_every_run_ends_once_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.runs.engine, "CANCEL_S", 0.2)
    monkeypatch.setattr(arena.runs.engine, "OVERDUE_S", 0.2)
    monkeypatch.setattr(arena.runs.engine, "FATAL_S", 0.05)
    monkeypatch.setattr(arena.runs.referee_process, "SHUTDOWN_S", 0.2)
    run_state_machine_as_test(Course, settings=examples(20, steps=8))


POLLS = f"""
import threading, time
from pathlib import Path
def poll():
    Path(f"/proc/self/task/{{threading.get_native_id()}}/comm").write_text("{POLLING}")
    print(threading.get_native_id(), flush=True)
    time.sleep({PATIENCE_S})
threading.Thread(target=poll, daemon=True).start()
time.sleep({PATIENCE_S})
"""


def test_only_polling_threads_give_way() -> None:
    process = subprocess.Popen([sys.executable, "-c", POLLS], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        polling = int(process.stdout.readline())
        os.sched_setscheduler(process.pid, os.SCHED_BATCH, os.sched_param(0))
        thread = threading.Thread(target=settle_ranks, args=([process.pid, 1 << 22],))  # it changes its own slice
        thread.start()
        thread.join()
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert [os.getpriority(os.PRIO_PROCESS, each) for each in (process.pid, polling)] == [own, LOWEST]
        assert [os.sched_getscheduler(each) for each in (process.pid, polling)] == [os.SCHED_OTHER] * 2
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not sessions_are_groups(), reason="this machine does not schedule sessions as groups")
@pytest.mark.slow
@pytest.mark.further
async def test_polling_threads_of_timed_worlds_give_way(paths: Paths):
    problem = load_catalogue().find("13")
    setting = choose_setting(problem, Choice(world=2, device="cpu"), Settings())
    async with Engine(paths) as engine:
        run = RunRequest(problem=problem, setting=setting, kernel_name="baseline", source="", rounds=1)
        await judge_to_end(engine, run)
        await comes_true(lambda: nice_values_below().count(LOWEST) >= setting.world)  # the contender's have ended


def nice_values_below() -> list[int]:
    """Returns the nice values of the polling threads below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    if (task / "comm").read_text().strip() == POLLING:
                        found.append(os.getpriority(os.PRIO_PROCESS, int(task.name)))
    return found


def test_a_wait_counts_before_it_ends(tmp_path, monkeypatch):
    for thread in (threads := [tmp_path / f"proc/7/task/{number}" for number in (8, 9)]):
        thread.mkdir(parents=True)
    waited = processes.waits_for_cores(lambda: [7])
    monkeypatch.setattr(processes, "Path", lambda path: tmp_path / path.removeprefix("/"))
    found = []
    for now, state, used, ended in [(1, "R", 5, 0), (3, "R", 5, 0), (4, "S", 6, 3), (9, "S", 6, 3), (10, "R", 6, 3)]:
        for thread in threads:
            (thread / "stat").write_text(f"8 (a) {state} 1")
            (thread / "schedstat").write_text(f"{used} {ended}000000000 1")
        monkeypatch.setattr(processes.time, "monotonic", lambda now=now: float(now))
        found.append(waited())
    threads.pop().rename(tmp_path / "ended")
    assert [*found, waited()] == [0, 4, 6, 6, 6, 6]
