"""`pkb-arena sweep` through its command, with a referee whose outcome is given."""

import json
from functools import partial

import msgspec
import pytest
from click.testing import CliRunner, Result
from scripted_referee import COMMAND

from arena.cli import sweep
from arena.errors import UsageError
from arena.runs.engine import Engine
from arena.sweep.journal import last_plan
from sandbox.protocol.verdict import ExitCode


def swept(
    monkeypatch: pytest.MonkeyPatch, outcome: str, *arguments: str, clock: str = "call", verdict: str = "PASS"
) -> Result:
    """Runs a sweep in which every baseline has this outcome by that clock."""
    environment = {"PKB_SCRIPTED_OUTCOME": outcome, "PKB_SCRIPTED_CLOCK": clock, "PKB_SCRIPTED_VERDICT": verdict}
    engine = partial(Engine, command=COMMAND, environment=environment)
    monkeypatch.setattr(sweep, "Engine", engine)
    return CliRunner().invoke(sweep.command, ["1", "13", "--device", "cpu", *arguments])


@pytest.mark.parametrize("outcome", ["faster", "slower"])
def test_baseline_that_differs_from_itself_is_named(monkeypatch, outcome):
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
    assert " ".join(header.split()) == "problem verdict A/A call headline s detail"  # no column without a value
    assert [line.split()[:3] for line in lines] == [["01", "allreduce", "PASS"], ["13", "gemm_allreduce", "PASS"]]


def test_headline_clock_decides_and_both_ratios_show(monkeypatch):
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


def test_size_that_problem_does_not_have_is_row(monkeypatch):
    done = swept(monkeypatch, "even", "--size", "Q=3", "--json")
    assert done.exit_code == ExitCode.KERNEL_FAILED
    assert [row["verdict"] for row in json.loads(done.stdout)] == ["REFUSED", "REFUSED"]


def test_harness_that_fails_is_no_kernel_that_fails(monkeypatch):
    done = swept(monkeypatch, "", "--json", verdict="HARNESS_ERROR")
    assert done.exit_code == ExitCode.ENVIRONMENT
    assert {row["verdict"] for row in json.loads(done.stdout)} == {"HARNESS_ERROR"}
    assert swept(monkeypatch, "", verdict="NONFINITE").exit_code == ExitCode.KERNEL_FAILED


def test_sweep_without_able_players_is_bad_usage(monkeypatch, paths):
    done = swept(monkeypatch, "even", "--players", "house", "--dtype", "nonsense", "--json")
    assert isinstance(done.exception, UsageError)
    assert "nothing can be played" in done.exception.message
    assert "nonsense" in done.exception.advice
    assert ("01_allreduce house: left out: " in done.stderr, done.stdout) == (True, "")
    assert list(paths.sweeps.iterdir()) == []


def test_a_sweep_without_a_result_prints_its_json(monkeypatch, tmp_path):
    for number in (1, 13):
        (tmp_path / f"{number}.py").write_text("pass\n")
    done = swept(monkeypatch, "", "--players", f"file:{tmp_path}", "--json", verdict="HARNESS_ERROR")
    assert done.exit_code == ExitCode.ENVIRONMENT
    said = json.loads(done.stdout)
    assert (said["done"], said["total"], said["whole"], said["scores"]) == (0, 2, False, [])


def test_resumed_sweep_keeps_plan_despite_refused_command(monkeypatch, paths):
    def swept_on(*arguments: str) -> Result:
        return CliRunner().invoke(sweep.command, ["--resume", "--name", "bud", *arguments])

    done = swept(monkeypatch, "even", "--name", "bud")
    assert done.exit_code == ExitCode.PASS, done.output
    journal = paths.sweeps / "bud.jsonl"
    before, first = journal.read_bytes(), last_plan(journal)
    for option, value in (
        ("--players", "baseline,house"),
        ("--problems", "all"),
        ("--attempts", "2"),
        ("--size", "M=8"),
    ):
        refused = swept_on(option, value)
        assert isinstance(refused.exception, UsageError)
        assert option in refused.exception.message
        assert journal.read_bytes() == before
    assert swept_on("--budget", "5", "--seconds", "2", "--players", "baseline").exit_code == ExitCode.PASS
    again = last_plan(journal)
    assert again.plan == msgspec.structs.replace(first.plan, budget_usd=5.0, seconds=2.0)


def test_resumed_sweep_without_able_players_adds_no_session(monkeypatch, paths, tmp_path):
    (tmp_path / "1.py").write_text("pass\n")
    swept(monkeypatch, "", "--players", f"file:{tmp_path}", "--name", "c", verdict="HARNESS_ERROR")
    before = (paths.sweeps / "c.jsonl").read_bytes()
    (tmp_path / "1.py").unlink()
    done = CliRunner().invoke(sweep.command, ["--resume", "--name", "c", "--budget", "5"])
    assert isinstance(done.exception, UsageError)
    assert "nothing can be played" in done.exception.message
    assert (paths.sweeps / "c.jsonl").read_bytes() == before
