"""`pkb-arena sweep` through its command, with a referee whose outcome is given."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from arena.cli.runs import sweep
from arena.runs.engine import Engine
from sandbox.protocol.verdict import ExitCode

COMMAND = (sys.executable, str(Path(__file__).parents[1] / "scripted_referee.py"))


def swept(monkeypatch: pytest.MonkeyPatch, outcome: str, *arguments: str, clock: str = "call") -> Result:
    """A sweep in which the baseline is called so by that clock."""
    environment = {"PKB_SCRIPTED_OUTCOME": outcome, "PKB_SCRIPTED_CLOCK": clock}
    engine = partial(Engine, command=COMMAND, environment=environment)
    monkeypatch.setattr(sweep, "Engine", engine)
    return CliRunner().invoke(sweep.command, ["1", "13", "--device", "cpu", *arguments])


@pytest.mark.parametrize("outcome", ["faster", "slower"])
def test_a_baseline_that_differs_from_itself_fails_and_is_named(monkeypatch, outcome):
    done = swept(monkeypatch, outcome)
    assert done.exit_code == ExitCode.KERNEL_FAILED
    assert f"the baseline of 1 allreduce is {outcome} than itself (end-to-end): 1.500 [1.400, 1.600]" in done.stderr
    assert f"the baseline of 13 gemm_allreduce is {outcome} than itself" in done.stderr


@pytest.mark.parametrize("outcome", ["even", "too noisy"])
def test_a_baseline_that_does_not_passes(monkeypatch, outcome):
    done = swept(monkeypatch, outcome)
    assert done.exit_code == ExitCode.PASS, done.stderr
    assert "than itself" not in done.stderr
    header, *lines = done.stdout.splitlines()
    assert header.split() == [
        "problem",
        "verdict",
        "call",
        "µs",
        "device",
        "µs",
        "A/A",
        "call",
        "A/A",
        "device",
        "headline",
        "of",
        "bound",
        "s",
        "detail",
    ]
    assert [line.split()[:3] for line in lines] == [["01", "allreduce", "PASS"], ["13", "gemm_allreduce", "PASS"]]


def test_the_headline_s_clock_decides_and_both_ratios_are_shown(monkeypatch):
    done = swept(monkeypatch, "slower", clock="device")
    assert done.exit_code == ExitCode.KERNEL_FAILED
    assert "13 gemm_allreduce is slower than itself (device time): 1.010 [0.990, 1.030]" in done.stderr
    line = done.stdout.splitlines()[1]
    assert "1.500" in line
    assert "1.010       slower device time" in line


def test_the_fields_of_its_json(monkeypatch):
    first, _ = json.loads(swept(monkeypatch, "even", "--json").stdout)
    assert first["call"] == [1.4, 1.5, 1.6]
    assert first.keys() == {
        *("id", "problem", "world", "dtype", "verdict", "detail", "outcome", "seconds", "text", "clock", "told"),
        *("call_us", "device_us", "call", "device", "percent", "limiter"),
    }


def test_a_size_that_a_problem_does_not_have_is_a_row(monkeypatch):
    done = swept(monkeypatch, "even", "--size", "Q=3", "--json")
    assert done.exit_code == ExitCode.KERNEL_FAILED
    assert [row["verdict"] for row in json.loads(done.stdout)] == ["REFUSED", "REFUSED"]
