"""With too few descriptors for a world, the run ends in a harness error with the cause, not in a refusal."""

import json
import resource
import subprocess
import sys

import pytest

from arena.paths import Paths

pytestmark = pytest.mark.slow


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (22, 22))


def test_too_few_descriptors_for_a_world_are_a_harness_error_with_its_cause(paths: Paths) -> None:
    command = [sys.executable, "-m", "arena.cli", "run", "allreduce", "baseline", "--device", "cpu", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 3, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "HARNESS_ERROR"
    assert "Too many open files" in result["detail"]
    assert "Choose other sizes" not in done.stdout + done.stderr
