"""The table of runs, and the notes on revisions."""

import csv
import subprocess
import sys
from pathlib import Path

from stored_runs import ran, record

from arena.paths import Paths
from arena.records.run_record import Unrun
from arena.records.run_table import HEADINGS, NOTES, best_times, read_notes, run_cells, write_note
from sandbox.protocol.result import Microseconds

A, B = "a" * 64, "b" * 64


def test_a_row_has_medians_and_interval() -> None:
    entry = record("r", faster=1.5, baseline_us=Microseconds(150.0, None), contender_us=Microseconds(100.0, None))
    cells = run_cells(entry, "two-shot, ring=2")
    assert [cells[name] for name in ("speedup", "low", "high")] == ["1.500", "1.400", "1.600"]
    assert [cells[name] for name in ("µs", "baseline µs", "clock")] == ["100.0", "150.0", "end-to-end"]
    assert (cells["note"], cells["setting"]) == ("two-shot, ring=2", "tiny bfloat16 W=2 cpu")
    assert run_cells(Unrun(1.0, A))["verdict"] == "not run"


def test_the_best_time_never_rises() -> None:
    newest_first = [
        record(f"r{us}", faster=1.5, contender_us=Microseconds(us, None)) for us in (99.0, 90.0, 120.0, 100.0)
    ]
    assert best_times(newest_first) == [100.0, 100.0, 90.0, 90.0]


def test_the_last_note_of_a_revision_counts(tmp_path: Path) -> None:
    for sha256, note in ((A, "ring=1"), (B, "tree"), (A, "ring=2\nand [b]"), (B, "")):
        write_note(tmp_path, sha256, note)
    with (tmp_path / NOTES).open("ab") as file:
        file.write(b"damaged\n")
    assert read_notes(tmp_path) == {A: "ring=2 and [b]", B: ""}


def test_a_killed_writer_loses_no_note(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from arena.records.run_table import write_note\n"
        "for n in range(10000): write_note(Path(sys.argv[1]), f'{n:064}', 'x' * 300); print(n, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(5)]
        writer.kill()
        said += writer.stdout.readlines()
    whole = len([line for line in said if line.endswith("\n")])
    assert len(read_notes(tmp_path)) >= whole
    write_note(tmp_path, A, "after")  # what the killed process left of a line is no part of it
    assert read_notes(tmp_path)[A] == "after"


def test_board_prints_the_columns_of_the_table(paths: Paths, pkb_arena) -> None:
    ran(paths, "r1", "def solution(): ...", 1.5)
    shown = pkb_arena("board", "--runs", "1", "--csv")
    rows = list(csv.reader(shown.stdout.splitlines()))
    assert rows[0] == list(HEADINGS)
    assert dict(zip(*rows, strict=True))["speedup"] == "1.500"
