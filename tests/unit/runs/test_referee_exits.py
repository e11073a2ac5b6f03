"""The end of a referee that the engine gave up: it may be late, and does not affect the next referee."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from scripted_referee import COMMAND
from waiting import PATIENCE_S, comes_true

import arena.runs.engine
import arena.runs.referee_process
from arena.errors import RefereeFailed
from arena.paths import Paths
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Cancelled, Finished, PhaseStarted
from sandbox.protocol.verdict import Verdict

PROBLEM = load_catalogue().find("13")
SETTING = choose_setting(PROBLEM, Choice(world=2, device="cpu"), Settings())
WITH_A_CHILD = """
import os, subprocess, sys
if not os.path.exists(sys.argv[1]):  # the first referee alone
    child = subprocess.Popen(["sleep", "60"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with open(sys.argv[1], "w") as file:
        file.write(str(child.pid))
os.execv(sys.executable, [sys.executable, sys.argv[2]])
"""


def request(source: str) -> RunRequest:
    return RunRequest(problem=PROBLEM, setting=SETTING, kernel_name="kernel.py", source=source)


async def test_late_end_of_old_referee_ends_no_run(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child holds its stderr open, so its end is noticed only when the child ends, too."""
    monkeypatch.setattr(arena.runs.engine, "OVERDUE_S", 0.1)
    monkeypatch.setattr(arena.runs.referee_process, "KILL_S", 60.0)
    child = tmp_path / "child"
    async with Engine(paths, command=(sys.executable, "-c", WITH_A_CHILD, str(child), COMMAND[-1])) as engine:
        given_up = await (await engine.judge(request("hang"))).end()
        assert isinstance(given_up, Finished)
        assert given_up.result.verdict is Verdict.HARNESS_ERROR
        monkeypatch.setattr(arena.runs.engine, "OVERDUE_S", 60.0)
        run = await engine.judge(request("wait"))
        async for event in run.events():
            if isinstance(event, PhaseStarted):
                break
        os.kill(int(child.read_text()), signal.SIGKILL)
        await asyncio.wait(engine._background, timeout=PATIENCE_S)  # the old referee has ended
        assert engine.running == run.run_id
        await run.cancel()
        assert isinstance(await run.end(), Cancelled)


async def test_an_end_that_is_late_holds_up_nobody(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHUTDOWN_S", "KILL_S"):
        monkeypatch.setattr(arena.runs.referee_process, name, 0.1)
    child = tmp_path / "child"
    async with Engine(paths, command=(sys.executable, "-c", WITH_A_CHILD, str(child), COMMAND[-1])) as engine:
        await engine.start()
        referee = engine._referee
    os.kill(int(child.read_text()), signal.SIGKILL)
    await comes_true(referee._process.stderr.at_eof)  # nothing of it is left for the next test


async def test_start_that_is_cancelled_leaves_no_failure_behind(paths: Paths, tmp_path: Path) -> None:
    faults: list[dict[str, object]] = []
    code, started = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(60)", tmp_path / "started"
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with Engine(paths, command=(sys.executable, "-c", code, str(started))) as engine:
        starting = asyncio.create_task(engine.start())
        await comes_true(started.exists)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert faults == []


async def test_bytes_beyond_text_end_referee_like_garbage(paths: Paths) -> None:
    code = 'import sys; sys.stdout.buffer.write(b\'{"type":"\\xff"}\\n\'); sys.stdout.flush(); sys.stdin.read()'
    async with Engine(paths, command=(sys.executable, "-c", code)) as engine:
        with pytest.raises(RefereeFailed, match="said something that is no event"):
            await engine.start()


async def test_crashed_referee_says_where(paths: Paths) -> None:
    async with Engine(paths) as engine:
        await engine.start()
        referee = engine._referee
        assert referee is not None
        os.kill(referee.pid, signal.SIGSEGV)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.shield(referee._reader)
        assert "Segmentation fault" in referee.last_words
        assert "referee/main.py" in referee.last_words  # which of its functions it is in depends on the moment


def test_the_end_of_a_referee_is_named() -> None:
    ends = [arena.runs.referee_process._status(status) for status in (0, -9, -99)]
    assert ends == ["ended with status 0", "was killed by SIGKILL", "was killed by signal 99"]
