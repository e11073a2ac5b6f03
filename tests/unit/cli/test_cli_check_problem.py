"""`pkb-arena check-problem`: its rows, its exit codes, and one clear sentence for a folder that cannot be used."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_programs import CommandLine, answer_of, fails

from arena.cli.check_problem import table
from sandbox.admission.row import CHEATS, HONEST, AdmissionRow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
MadeProblem = Callable[..., Path]


def test_an_honest_problem_is_admitted(pkb_arena: CommandLine, made_problem: MadeProblem) -> None:
    baseline = (
        "import torch.distributed as dist\n\n\ndef solution(x):\n    print('{words of a problem}')\n"
        "    total = x.clone()\n    dist.all_reduce(total)\n    return total\n"
    )
    done = pkb_arena(
        "check-problem", str(made_problem(baseline=baseline)), "--world", "1,2,7", "--preset", "tiny", "--json"
    )
    rows = answer_of(done)
    assert [(row["stem"], row["world"], row["dtype"], row["against"]) for row in rows] == [
        ("901_total", 1, "float32", []),
        ("901_total", 2, "float32", []),
    ]
    assert rows[1]["baseline"] == ["PASS", ""]
    assert set(CHEATS) <= set(rows[1])
    assert {"silent", "problem", "error", "alias"}.isdisjoint(rows[0])
    assert done.stderr.splitlines() == ["901_total tiny W=1 float32: ok", "901_total tiny W=2 float32: ok"]


def test_problem_that_is_not_admitted_exits_with_1(pkb_arena: CommandLine, made_problem: MadeProblem) -> None:
    folder = made_problem(baseline="def solution(x):\n    return x * 2\n", check="")
    done = pkb_arena("check-problem", str(folder), "--world", "2", "--preset", "tiny")
    assert done.returncode == 1
    assert done.stderr == "901_total tiny W=2 float32: silent passes\n"
    assert done.stdout.splitlines() == ["901_total: Sum over all ranks", "solution(x)"]


@pytest.mark.further
def test_problem_copied_as_guide_says_is_admitted(pkb_arena: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "collective" / "my_problem"
    shutil.copytree(ROOT / "problems" / "collective" / "allreduce", folder)
    (folder / "house.py").unlink()
    lines = (folder / "problem.toml").read_text(encoding="utf-8").splitlines()
    lines = ["id = 901" if line.startswith("id ") else line for line in lines]
    (folder / "problem.toml").write_text("\n".join(lines), encoding="utf-8")
    done = pkb_arena("check-problem", str(folder), "--world", "1", "--preset", "tiny")
    assert done.returncode == 0, done.stderr


# test_admission.py covers other faults of these files.
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "problem.toml is missing"),
    "no card": (lambda folder: (folder / "card.md").unlink(), "card.md is missing"),
    "no solution": (lambda folder: (folder / "baseline.py").write_text("x = 1\n"), "defines no solution(...)"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_folder_that_cannot_be_used_is_usage_error(
    pkb_arena: CommandLine, made_problem: MadeProblem, what: str
) -> None:
    folder = made_problem()
    breaks, words = BROKEN[what]
    breaks(folder)
    done = pkb_arena("check-problem", str(folder), "--world", "1", "--json")
    fails(done, 2, words)
    assert str(folder) in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


def test_other_world_sizes_are_a_usage_error(pkb_arena: CommandLine, made_problem: MadeProblem) -> None:
    done = pkb_arena("check-problem", str(made_problem()), "--world", "7")
    fails(done, 2, "total does not run on 7 ranks\n  choose --world from 1, 2")


def test_the_table_counts_over_worlds_and_dtypes() -> None:
    passed, wrong = ("PASS", ""), ("WRONG_RESULT", "rank 0: out")
    rejected = dict.fromkeys(CHEATS[:-1], wrong) | dict.fromkeys(HONEST, passed)
    rows = [
        AdmissionRow(1, "01_total", 1, "float32", baseline=passed, own_rms=0.25, peak_mib=100, **{**rejected, "input": passed}),
        AdmissionRow(1, "01_total", 2, "float32", baseline=passed, own_rms=0.5, peak_mib=100, **rejected, silent=wrong),
        AdmissionRow(1, "01_total", 2, "float32", baseline=passed, preset="paper", **{**rejected, "average": passed}),
        AdmissionRow(2, "02_crash", 2, "float32", ["ValueError: no"], error="Traceback\nValueError: no"),
    ]  # fmt: skip
    first, second = table(rows).splitlines()[-2:]
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[:5] == ["01_total", "1, 2", "float32", "2/2", "5.0e-01"]
    assert cells[5:20] == ["2", "2", "1 of 2 (excused)", *["2"] * 11, "1"]
    assert cells[20:] == ["2/2", "2/2", "2/2", "13/14 (average)", "none", "none", "200", "–"]
    assert second.startswith("| 02_crash | 2 | float32 | 0/1 | 0.0e+00 | none |")
    assert second.endswith("| ValueError: no |")
