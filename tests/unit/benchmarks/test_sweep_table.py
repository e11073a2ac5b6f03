"""Journals of several sweeps as one table."""

import tomllib
from pathlib import Path

import click.testing
import pytest
from stored_runs import cell_result, header, journal_of
from stored_runs import result as run_result

from arena.records.run_record import record_of
from arena.sweep.records import Cell, CellResult
from benchmarks.sweep_table import EXPECTED, command
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Interval, Microseconds, Setting
from sandbox.protocol.verdict import Verdict

SETTING = Setting("", "production", {"M": 8}, 2, "cuda", "float32")


def result(speedup: float, player: str = "house", us: float = 10.0, verdict: Verdict = Verdict.PASS) -> CellResult:
    begun = header("r", player=player, setting=SETTING)
    passed = run_result(
        verdict,
        Interval(speedup, speedup - 0.1, speedup + 0.1),
        baseline_us=Microseconds(call=30.0, device=20.5),
        contender_us=Microseconds(call=us, device=8.25),
        outcome="faster",
        clock="call",
        rounds=9,
    )
    cell = Cell(slug="allreduce", setting=SETTING, player=player, attempt=1, catalogue="v")
    return cell_result(cell, str(verdict), at=speedup, report=record_of(begun, passed))


@pytest.fixture
def journals(tmp_path: Path) -> list[str]:
    """Two sweeps; the later one measured the first one's problem again."""
    return [journal_of(tmp_path / f"{speedup}.jsonl", result(speedup)) for speedup in (1.2, 3.0)]


def test_later_result_takes_place_of_earlier_one(journals: list[str]) -> None:
    done = click.testing.CliRunner().invoke(command, journals)
    assert "3.00 [2.90, 3.10] faster" in done.stdout
    assert "1.20" not in done.stdout
    assert "1 results, 1 PASS, 1 faster, geometric mean 3.00" in done.stdout


def told(tmp_path: Path, *found: CellResult) -> str:
    done = click.testing.CliRunner().invoke(command, [journal_of(tmp_path / "one.jsonl", *found)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_variants_become_columns_and_expected_speedup_stands_beside(tmp_path: Path) -> None:
    text = told(
        tmp_path, result(3.0, us=10.0), result(1.5, "baseline-graph", us=21.0), result(1.2, "baseline-windows", us=25.0)
    )
    lines = text.splitlines()
    assert lines[1].split()[-5:] == ["2.10", "2.50", "–", "1.13", "1.0"]
    assert lines[1].split("faster")[1].split()[:2] == ["20.5", "8.2"]
    assert "baseline-graph" not in lines[1] + lines[2]
    assert lines[-2].startswith("baseline-windows: 1 results, 1 PASS")


def test_speedup_is_expected_at_both_sizes() -> None:
    expected = tomllib.loads(EXPECTED.read_text())
    assert list(expected) == [problem.slug for problem in load_catalogue().problems]
    assert all(len(pair) == 2 and min(pair) > 1 for pair in expected.values())
