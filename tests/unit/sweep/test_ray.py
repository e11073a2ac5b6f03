"""A sweep over Ray on this machine: the same results, a killed actor, and a killed driver that resumes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import eventually

from arena.paths import paths_in

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pkb-arena[ray]'")
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

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


def test_killed_actor_and_killed_driver_lose_nothing(home: Path) -> None:
    command = [*COMMAND, "--problems", "1-3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: len(results(home)) >= 1)
        host = ray_host(process)
        assert host is not None
        host.kill()  # in the middle of a run: Ray restarts the actor, and the run is repeated
        eventually(lambda: len(results(home)) >= 3)
        assert {result["verdict"] for result in results(home)} == {"PASS"}
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        psutil.wait_procs(below, timeout=30)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["whole"]
    keys = [result["key"] for result in results(home)]
    assert len(keys) == len(set(keys)) == 6
    assert "Traceback" not in done.stderr
    runs = {path.stem for path in (home / "data" / "runs").glob("*.jsonl")}
    assert all(result["report"]["run_id"] in runs for result in results(home))  # type: ignore[index]


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
        process.communicate(timeout=90)
    assert process.returncode == 130
