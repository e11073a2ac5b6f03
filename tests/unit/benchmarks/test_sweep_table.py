"""Journals of several sweeps as one table."""

from pathlib import Path

import click.testing
import pytest

from arena.models.budget import Spent
from arena.runs.journal import RunHeader
from arena.runs.results import report
from arena.sweep.journal import SweepJournal
from arena.sweep.records import Cell, CellResult
from benchmarks.sweep_table import command
from sandbox.protocol.events import Interval, Result, Seconds, Setting, Speedup
from sandbox.protocol.verdict import Verdict

SETTING = Setting("", "production", {"M": 8}, 2, "cuda", "float32")


def result(speedup: float) -> CellResult:
    header = RunHeader(
        run_id="r", created=1.0, problem_id=1, slug="allreduce", category="collective", player="house", kernel_name="house.py",
        kernel_path="", sha256="", source="", setting=SETTING,
    )  # fmt: skip
    passed = Result(
        verdict=Verdict.PASS, detail="", failure=None, paper_rule=None, error=None, baseline_us=None, contender_us=None,
        speedup=Speedup(call=Interval(speedup, speedup - 0.1, speedup + 0.1), device=None), roofline=None,
        seconds=Seconds(), jail="", sealed=True, outcome="faster", clock="call", rounds=9,
    )  # fmt: skip
    cell = Cell(slug="allreduce", setting=SETTING, player="house", attempt=1, catalogue="v")
    return CellResult(
        at=speedup, key=cell.key("", "m"), cell=cell, problem_id=1, category="collective", class_="C", sha256="", machine="m",
        worker="local", verdict="PASS", detail="", report=report(header, passed), spent=Spent(), trace_id="", seconds=1.0,
    )  # fmt: skip


@pytest.fixture
def journals(tmp_path: Path) -> list[str]:
    """Two sweeps; the later one measured the first one's problem again."""
    paths = []
    for name, speedup in (("first", 1.2), ("second", 3.0)):
        journal = SweepJournal(tmp_path / f"{name}.jsonl", name)
        journal.append(result(speedup))
        journal.close()
        paths.append(str(journal.path))
    return paths


def test_a_later_result_takes_the_place_of_an_earlier_one(journals: list[str]) -> None:
    done = click.testing.CliRunner().invoke(command, journals)
    assert "3.00 [2.90, 3.10] faster" in done.stdout
    assert "1.20" not in done.stdout
    assert "1 results, 1 PASS, 1 faster, geometric mean 3.00" in done.stdout
