"""Runs on real ranks: saves in quick succession, and too few descriptors for a world."""

import asyncio
import json
import os
import resource
import subprocess
import sys

import pytest

from arena.paths import Paths
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Cancelled, Finished
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import CheckPoison, MakeArenas, Wake
from sandbox.protocol.verdict import Verdict
from sandbox.referee.main import Referee

pytestmark = pytest.mark.slow


async def test_run_is_not_blamed_for_earlier_cancelled_ones(paths: Paths) -> None:
    problem = load_catalogue().find("13")
    setting = choose_setting(problem, Choice(preset="tiny", world=2, device="cpu"), Settings())

    def request(number: int) -> RunRequest:
        source = f"{problem.baseline_source}\n# revision {number}\n"
        return RunRequest(problem=problem, setting=setting, kernel_name="kernel.py", source=source, rounds=1)

    async with Engine(paths) as engine:
        older = []
        pauses = [0.3, 0.6, 1.2, 0.05, 0.1, 0.4]  # across starting, opening, checking and timing
        for number, pause in enumerate(pauses):
            older.append(await engine.judge(request(number)))
            await asyncio.sleep(pause)
        last = await (await engine.judge(request(99))).end()
        assert isinstance(last, Finished)
        assert last.result.verdict is Verdict.PASS, last.result.detail
        for run in older:
            end = await run.end()
            assert isinstance(end, Cancelled) or (isinstance(end, Finished) and end.result.verdict is Verdict.PASS)


def test_answer_for_cancelled_run_is_not_the_next() -> None:
    setting = choose_setting(load_catalogue().find("1"), Choice(preset="tiny", world=2, device="cpu"), Settings())
    referee = Referee()
    try:
        stage = referee.oracle.prepare(setting)
        for turn in range(6):
            stage.world.tell(MakeArenas(stage.layout, own=not turn, side=0))
            answers = referee.await_all(stage.world, Kind.ARENAS_MADE, 10.0)
            descriptors = [fd for answer in answers for fd in answer.fds]
            for fd in descriptors:
                os.close(fd)
            assert len(descriptors) == 2 * len(answers)
            stage.world.tell(CheckPoison([]))  # the last order of a check, which is cancelled here
            referee.oracle.finish_orders(referee.poll)
        stage.world.tell(Wake())  # as after every killed contender on GPUs
        referee.await_all(stage.world, Kind.AWAKE, 10.0)
    finally:
        referee.close()


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (22, 22))


def test_missing_descriptors_are_harness_error_with_cause(paths: Paths) -> None:
    command = [sys.executable, "-m", "arena.cli", "run", "allreduce", "baseline", "--device", "cpu", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 3, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "HARNESS_ERROR"
    assert "Too many open files" in result["detail"]
    assert "Choose other sizes" not in done.stdout + done.stderr
