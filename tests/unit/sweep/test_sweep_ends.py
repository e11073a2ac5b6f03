"""Sweeps of models through the command, and sweeps that end early: a full disk, ctrl+c, a provider without answers."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from model_server import KEY, ModelServer, status, streamed
from waiting import PATIENCE_S, eventually

from arena.errors import MachineError
from arena.paths import Paths, paths_in
from arena.sweep.journal import SweepJournal, read_lines
from arena.sweep.records import SweepSession

CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]
WRONG, RIGHT = (f"```python\n{word}\n\n\ndef solution(tensor):\n    return tensor\n```\n" for word in ("wrong", "pass"))
SETTING = ("--device", "cpu", "--rounds", "0", "--one-size", "--unsafe")


def lines(home: Path, kind: str) -> list[dict[str, object]]:
    journal = paths_in(home).sweeps / "c.jsonl"
    return [line for line in map(json.loads, journal.read_text().splitlines()) if line["type"] == kind]


def test_line_without_room_leaves_nothing_of_itself(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = SweepJournal(paths.sweeps / "c.jsonl", "c")
    whole = journal.path.read_bytes()
    write = os.pwrite

    def half(file: int, data: bytes, at: int) -> int:
        if at > len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:10], at)

    monkeypatch.setattr(os, "pwrite", half)
    line = SweepSession(at=1.0, plan=None, machines=[], arena="")  # type: ignore[arg-type]
    with pytest.raises(MachineError, match="No space left"):
        journal.append(line)
    monkeypatch.undo()
    assert journal.path.read_bytes() == whole
    journal.close()
    assert len(list(read_lines(journal.path))) == 1


def test_answers_of_model_are_judged_without_key(
    pkb_arena_scripted: CommandLine, models: ModelServer, home: Path
) -> None:
    models.replies = [streamed(WRONG), streamed("I would rather not.")]
    command = (
        "sweep",
        "--players",
        "model:gemini",
        "--problems",
        "1",
        "--attempts",
        "3",
        *SETTING,
        *("--name", "c", "--json"),
    )
    done = pkb_arena_scripted(*command)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["whole"], said["done"]) == (True, 3)
    assert sorted(str(line["verdict"]) for line in lines(home, "result")) == ["NO_KERNEL", "NO_KERNEL", "WRONG_RESULT"]
    assert said["scores"][0]["usd"] == pytest.approx(3 * (100 * 1.0 + 50 * 10.0) / 1e6)
    for path in home.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    asked = len(models.seen)
    again = pkb_arena_scripted(*command, "--resume")
    assert again.returncode == 0
    assert len(models.seen) == asked


def test_agent_counts_only_what_it_submits(pkb_arena_scripted: CommandLine, models: ModelServer, home: Path) -> None:
    models.replies = [streamed(WRONG), streamed(RIGHT)]
    done = pkb_arena_scripted(
        "sweep", "--players", "agent:openai_chat", "--problems", "1", "--steps", "2", *SETTING, "--name", "c"
    )
    assert done.returncode == 0, done.stderr
    assert [line["verdict"] for line in lines(home, "result")] == ["PASS"]
    assert len(models.seen) == 2
    assert "WRONG_RESULT" in models.seen[1].prompt
    (path,) = (home / "data" / "traces").glob("*.jsonl")
    assert lines(home, "result")[0]["trace_id"] == path.stem


def test_missing_provider_is_exit_code_and_way_on(
    pkb_arena_scripted: CommandLine, models: ModelServer, home: Path
) -> None:
    models.replies = [status("401 Unauthorized", '{"error": {"message": "who are you"}}')]
    command = (
        "sweep",
        "--players",
        "baseline,model:gemini",
        "--problems",
        "1",
        "--attempts",
        "2",
        *SETTING,
        "--name",
        "c",
    )
    done = pkb_arena_scripted(*command)
    assert done.returncode == 3
    assert "who are you" in done.stderr
    assert "1 of 3 results are in; continue with `pkb-arena sweep --resume --name c`" in done.stderr
    assert KEY not in done.stderr
    models.replies = [streamed(WRONG)]
    done = pkb_arena_scripted("sweep", "--resume", "--name", "c", "--unsafe")
    assert done.returncode == 0, done.stderr
    assert len(lines(home, "result")) == 3


@pytest.mark.slow
def test_interrupt_keeps_everything_and_says_how_to_resume(home: Path) -> None:
    command = [sys.executable, "-P", "-m", "arena.cli", "sweep", "--players", "baseline", "--problems", "1-8"]
    command += ["--rounds", "0", "--device", "cpu", "--name", "c"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    eventually(lambda: (paths_in(home).sweeps / "c.jsonl").exists() and lines(home, "result"))
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "of 8 results are in; continue with" in said
    assert "01 allreduce" in out
    assert 1 <= len(lines(home, "result")) < 8
