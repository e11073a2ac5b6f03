"""Harbor tasks: what the agent sees, what the verifier runs, and the rewards of a report."""

import math
import os
import tomllib
from pathlib import Path

import msgspec
import pytest
from stored_runs import record

from arena.errors import UsageError
from arena.export.harbor import KERNEL, export_harbor, rewards
from arena.paths import Paths
from arena.records.run_record import json_of
from arena.settings import Settings
from problems.catalogue import Catalogue, load_catalogue
from sandbox.protocol.events import Speedup
from sandbox.protocol.result import Microseconds
from sandbox.protocol.verdict import Verdict

PROBLEMS = [load_catalogue().find(name) for name in ("1", "13")]


def test_a_task_separates_agent_and_judge(paths: Paths, tmp_path: Path) -> None:
    assert export_harbor(paths, Catalogue(PROBLEMS), Settings(device="cpu"), tmp_path / "tasks", "1.0") == 2
    for problem in PROBLEMS:
        task = tmp_path / "tasks" / problem.stem
        config = tomllib.loads((task / "task.toml").read_text())
        assert config["verifier"]["environment_mode"] == "separate"
        assert (config["artifacts"], config["metadata"]["id"]) == ([KERNEL], problem.id)
        assert problem.baseline_source.strip() in (task / "instruction.md").read_text()
        assert [path.name for path in (task / "environment").iterdir()] == ["Dockerfile"]
        assert "pkb-arena" not in (task / "environment" / "Dockerfile").read_text()
        assert (
            f"pkb-arena run {problem.id} {KERNEL} --preset tiny --device cpu"
            in (task / "tests" / "test.sh").read_text()
        )
        assert os.access(task / "tests" / "test.sh", os.X_OK)
        assert (task / "solution" / "kernel.py").read_text() == (problem.house_source or problem.baseline_source)
    with pytest.raises(UsageError, match="not empty"):
        export_harbor(paths, Catalogue(PROBLEMS), Settings(), tmp_path / "tasks", "1.0")


def test_only_a_verdict_on_the_kernel_gives_rewards() -> None:
    faster = rewards(msgspec.json.encode(record("r", faster=2.0)))
    assert faster == {"reward": pytest.approx(math.log2(1.9)), "correct": 1.0, "faster": 1.0}
    wrong = msgspec.json.encode(record("r", verdict=Verdict.WRONG_RESULT))
    assert rewards(wrong) == {"reward": 0.0, "correct": 0.0, "faster": 0.0}
    assert rewards(msgspec.json.encode(record("r", verdict=Verdict.HARNESS_ERROR))) is None
    assert rewards(b"") is None
    times = Microseconds(call=2.0, device=None)
    claims_nothing = {"speedup": Speedup(call=None, device=None), "baseline_us": times, "contender_us": times}
    undecided = json_of(record("r", outcome="too noisy", clock="call", **claims_nothing))
    assert undecided["speedup"]["call"] == {"median": 1.0, "low": None, "high": None}
    assert rewards(msgspec.json.encode(undecided)) == {"reward": 0.0, "correct": 1.0, "faster": 0.0}
