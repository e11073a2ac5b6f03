"""Sweeps of models through the command, and sweeps that end early: a full disk, ctrl+c, a provider without answers."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from fcntl import LOCK_EX
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from forked_programs import COMMAND_LINE, CommandLine, answer_of, fails
from model_server import KEY, ModelServer, status, streamed
from stored_runs import header
from waiting import PATIENCE_S, eventually

from arena.errors import FolderUnwritable, UsageError
from arena.paths import Paths, make_folder, paths_in
from arena.records.header import read_header
from arena.records.json_lines import LineFile
from arena.sweep import underway
from arena.sweep.underway import Sweeps, Work, rename_sweep, running_cells, runs_under_way, start_sweep, stop_sweep
from sandbox.referee.lease import Applicant, Note, Urgency

WRONG, RIGHT = (f"```python\n{word}\n\n\ndef solution(tensor):\n    return tensor\n```\n" for word in ("wrong", "pass"))
SETTING = ("--device", "cpu", "--rounds", "0", "--one-size", "--unsafe")


def lines(home: Path, kind: str) -> list[dict[str, object]]:
    journal = paths_in(home).sweeps / "c.jsonl"
    return [line for line in map(json.loads, journal.read_text().splitlines()) if line["type"] == kind]


def test_answers_of_model_are_judged_without_key(
    pkb_arena_scripted: CommandLine, models: ModelServer, home: Path
) -> None:
    models.replies = [streamed(WRONG), streamed("I would rather not.")]
    options = "--players model:gemini --problems 1 --attempts 3 --name c --json"
    command = ("sweep", *options.split(), *SETTING)
    done = pkb_arena_scripted(*command)
    said = answer_of(done)
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
    options = "--players baseline,model:gemini --problems 1 --attempts 2 --name c"
    command = ("sweep", *options.split(), *SETTING)
    done = pkb_arena_scripted(*command)
    fails(done, 3, "who are you", "1 of 3 results are in; continue with `pkb-arena sweep --resume --name c`")
    assert KEY not in done.stderr
    models.replies = [streamed(WRONG)]
    done = pkb_arena_scripted("sweep", "--resume", "--name", "c", "--unsafe")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\d/\d) ", done.stderr, re.MULTILINE) == ["2/3", "3/3"]
    assert len(lines(home, "result")) == 3


@pytest.mark.slow
def test_interrupt_keeps_everything_and_says_how_to_resume(home: Path, shared_referee: Any) -> None:
    command = [sys.executable, "-P", "-c", COMMAND_LINE, "sweep", "--players", "baseline", "--problems", "1-40"]
    command += ["--rounds", "0", "--device", "cpu", "--name", "c"]
    environment = os.environ | {"PKB_TEST_REFEREE": json.dumps(shared_referee.command)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    eventually(lambda: (paths_in(home).sweeps / "c.jsonl").exists() and lines(home, "result"))
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "of 40 results are in; continue with" in said
    assert "01 allreduce" in out
    assert 1 <= len(lines(home, "result")) < 40


def applicant(pid: int, urgency: Urgency, holds: bool = False, expected_s: float = 4.0) -> Applicant:
    return Applicant(0, pid, Note(["cores"], urgency, 1000.0, holds, "allreduce", expected_s))


def test_a_turn_is_expected_after_those_before_it() -> None:
    held = [
        applicant(1, Urgency.PERSON, holds=True),
        applicant(2, Urgency.PERSON),
        applicant(3, Urgency.SWEEP, expected_s=0),
        applicant(4, Urgency.SWEEP),
    ]
    rows = [(row.place, row.expected_s) for row in runs_under_way(held)]
    assert rows == [("running", 4.0), ("1", 4.0), ("2 after people", 8.0), ("3 after people", None)]


def test_running_cells_are_read_again_after_changes(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(paths.runs)
    journal = LineFile(make_folder(paths.sweeps) / "s.jsonl", lock=LOCK_EX)
    run, read = LineFile(paths.runs / "r1.jsonl"), []
    monkeypatch.setattr(underway, "read_header", lambda path: read.append(path) or read_header(path))
    looks = partial(running_cells, paths.runs, paths.sweeps / "s.jsonl")
    assert looks() == []  # its first line is not written yet
    run.append(msgspec.json.encode(header(player="house")))
    assert looks() == looks() == [(1, "allreduce", "house")]
    assert len(read) == 2
    run.close()
    journal.append(b"{}")
    os.utime(paths.sweeps / "s.jsonl", (1 << 33, 1 << 33))  # else within a tick of the clock of files
    assert looks() == []
    journal.close()


def test_wrong_options_of_a_sweep_are_refused(paths: Paths) -> None:
    paths.sweeps.mkdir(parents=True)
    (paths.sweeps / "mine.jsonl").touch()
    os.utime(paths.sweeps / "mine.jsonl", (1 << 33, 1 << 33))  # the clock was set back since
    with pytest.raises(UsageError, match="'nobody' names no player → use "):
        start_sweep(paths, "--players nobody --name=mine")
    assert (paths.sweeps / "mine.log").exists()
    for options, said in (("--name 'a", "quot"), ("", "no options: every baseline would run")):
        with pytest.raises(UsageError, match=said):
            start_sweep(paths, options)


@pytest.mark.slow
def test_a_sweep_is_started_stopped_and_resumed(paths: Paths) -> None:
    sweeps = Sweeps(paths)

    def row(there: Callable[[Work], bool]) -> Work:
        found: list[Work] = []
        eventually(lambda: found.extend(filter(there, sweeps.rows())) or found)
        return found[0]

    name = start_sweep(paths, "1 2 8 --name mine --device cpu --world 1 --rounds 0")
    assert [each.sweep for each in sweeps.rows()] == [name] == ["mine"]  # also before it has its plan
    stop_sweep(row(lambda each: each.place == "running" and " baseline · sweep " in each.what))
    stopped = row(lambda each: each.place == "stopped")
    assert "of 3" in stopped.what
    with pytest.raises(UsageError, match="not running"):
        stop_sweep(stopped)
    start_sweep(paths, f"--resume --name {name}")
    running = row(lambda each: each.place == "running")
    with pytest.raises(UsageError, match="running"):
        rename_sweep(paths, stopped, "spring")  # it was resumed since
    done = row(lambda each: each.place == "done" and "3 of 3" in each.what)
    rename_sweep(paths, running, "spring")  # it has ended since
    assert row(lambda each: each.place == "done").sweep == "spring"
    assert sorted(path.name for path in paths.sweeps.glob("*.*l*")) == ["spring.jsonl", "spring.log"]
    (paths.sweeps / "spring.log").unlink()  # as of a sweep that the command line began
    rename_sweep(paths, row(lambda each: each.place == "done"), "autumn")
    assert [path.name for path in paths.sweeps.glob("*.*l*")] == ["autumn.jsonl"]
    with pytest.raises(UsageError, match="cannot be"):
        rename_sweep(paths, done, "../spring")
    with pytest.raises(FolderUnwritable):
        rename_sweep(paths, done, "summer")  # it has another name by now


on_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'pkb-arena[ray]'")

COMMAND = (
    *(sys.executable, "-P", "-m", "arena.cli", "sweep", "--players", "baseline,house", "--rounds", "0", "--one-size"),
    *("--device", "cpu", "--ray", "--name", "r", "--resume", "--json"),
)


def results(home: Path) -> list[dict[str, object]]:
    journal = paths_in(home).sweeps / "r.jsonl"
    found = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    return [line for line in map(json.loads, found) if line["type"] == "result"]


def ray_host(process: "subprocess.Popen[str]") -> psutil.Process | None:
    below = psutil.Process(process.pid).children(recursive=True)
    return next((child for child in below if child.name().startswith("ray::RayHost")), None)


@on_ray
@pytest.mark.long
@pytest.mark.timeout(400)
def test_killed_actor_and_killed_driver_lose_nothing(home: Path) -> None:
    command = [*COMMAND, "--problems", "1-3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: len(results(home)) >= 1)
        host = ray_host(process)
        host.kill()  # in the middle of a run: Ray restarts the actor, and the run is repeated
        eventually(lambda: len(results(home)) >= 3)
        assert {result["verdict"] for result in results(home)} == {"PASS"}
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        psutil.wait_procs(below, timeout=PATIENCE_S)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert answer_of(done)["whole"]
    keys = [result["key"] for result in results(home)]
    assert len(keys) == len(set(keys)) == 6
    assert "Traceback" not in done.stderr
    runs = {path.stem for path in (home / "data" / "runs").glob("*.jsonl")}
    assert all(result["report"]["run_id"] in runs for result in results(home))  # type: ignore[index]


@on_ray
@pytest.mark.long
@pytest.mark.timeout(400)
def test_no_key_reaches_cluster_that_is_started_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
    command = [*COMMAND, "--problems", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: ray_host(process) is not None)
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                assert "SOME_API_KEY" not in child.environ(), child.name()
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue  # the referee's memory cannot be read
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
