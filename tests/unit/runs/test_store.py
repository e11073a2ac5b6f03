"""The index of results: standings, and rebuilding it from journals when it is lost."""

import asyncio
import csv
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from stored_runs import entry_in, ran, record
from stored_runs import header as run_header
from stored_runs import result as run_result
from waiting import PATIENCE_S

from arena.board.tables import WIDTH
from arena.errors import StoreError
from arena.paths import Paths
from arena.records import index
from arena.records.code_hash import LONGEST, code_hash
from arena.records.header import RunHeader
from arena.records.index import Store
from arena.records.json_lines import Journal
from arena.records.ranking import Measurement, ranked
from arena.records.run_record import RunRecord, Unrun, record_of
from arena.records.run_table import HEADINGS, NOTES, best_times, read_notes, run_cells, write_note
from arena.runs.engine import ResultRecorder
from arena.runs.judge import Notice
from arena.workspace.kernels import Workspace, content_hash
from sandbox.protocol.events import Finished, Interval, Judged, Result, Setting, Speedup
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.result import Microseconds
from sandbox.protocol.verdict import Verdict


def header(run_id: str, created: float = 1.0, problem: int = 13, device: str = "cpu", **changes: object) -> RunHeader:
    setting = Setting(problem_dir="/p", preset="tiny", sizes={"M": 2}, world=2, device=device, dtype="bfloat16")
    made = run_header(
        run_id,
        f"code_of_{run_id} = 1",
        created=created,
        problem_id=problem,
        slug="gemm_allreduce",
        category="tensor",
        kernel_path="/k/kernel.py",
        sha256="ab" * 32,
        setting=setting,
        machine="this",
    )
    return msgspec.structs.replace(made, **changes)


def result(verdict: Verdict = Verdict.PASS, speedup: float | None = None, outcome: str = "") -> Result:
    call = None if speedup is None else Interval(median=speedup, low=0.95 * speedup, high=1.05 * speedup)
    return run_result(verdict, call, outcome=outcome)


@pytest.fixture
def store(paths: Paths) -> Store:
    return Store(paths.database, paths.runs)


def entries(*rows: tuple[RunHeader, Result]) -> list[RunRecord]:
    return [record_of(*row) for row in rows]


def test_history_is_newest_first_and_leaves_baseline_out(store: Store) -> None:
    for entry in entries(
        (header("a", 1.0), result()),
        (header("b", 2.0, kernel_name="baseline"), result()),
        (header("c", 3.0), result(Verdict.WRONG_RESULT)),
        (header("d", 4.0, problem=1), result()),
        (header("e", 5.0, player="model:x"), result()),
    ):
        store.record(entry)
    assert [entry.run_id for entry in store.history(13)] == ["c", "a"]


def test_the_best_is_the_fastest_honest_pass(store: Store) -> None:
    for entry in entries(
        (header("a", 1.0), result(speedup=1.2, outcome="faster")),
        (header("b", 2.0), result(Verdict.WRONG_RESULT, speedup=9.0, outcome="faster")),
        (header("c", 3.0, preset_sizes=False), result(speedup=8.0, outcome="faster")),
        (header("d", 4.0), result(speedup=7.0, outcome="too noisy")),
        (header("e", 5.0), result(speedup=1.1, outcome="faster")),
        (header("f", 6.0, problem=1), result(Verdict.OUT_OF_MEMORY)),
    ):
        store.record(entry)
    standing = store.standings()[13]
    assert (standing.best.run_id, standing.words) == ("a", "▲ 1.20×")
    assert store.standings()[1].words == "✗ memory"
    assert (standing.runs, standing.solved, standing.faster, standing.last.run_id) == (5, True, True, "e")


def test_run_at_other_sizes_is_no_best(store: Store) -> None:
    setting = msgspec.structs.replace(header("b").setting, dtype="float32")
    other = header("b", 2.0, setting=setting, source="code_of_a = 1", other_than="a")
    for entry in entries(
        (header("a", 1.0), result(speedup=1.2, outcome="faster")), (other, result(speedup=9.0, outcome="faster"))
    ):
        store.record(entry)
    standing, overall = store.standings()[13], store.best()[13]
    assert (standing.best.run_id, standing.holds, overall.best.run_id) == ("a", "all", "a")


def test_runs_of_same_code_are_one_measurement(store: Store) -> None:
    """Runs that differ in comments alone are one measurement, so the luckiest is neither the best nor a record."""
    for number, speedup in enumerate((1.25, 3.06, 1.3)):
        source = f"# try {number}\n\nx = 1\n"
        store.record(record_of(header(f"a{number}", number, source=source), result(speedup=speedup)))
    store.record(record_of(header("b", 9.0, source="y = 2"), result(speedup=1.5)))
    standing, overall = store.standings()[13].best, store.best()[13].best
    assert standing is not None
    assert [(each.code, each.median) for each in (standing, overall)] == [(code_hash("y = 2"), 1.5)] * 2


def test_measurements_in_different_settings_are_not_pooled(store: Store) -> None:
    for run_id, speedup, machine in (("a", 1.5, "this"), ("b", 2.5, "other")):
        store.record(record_of(header(run_id, source="x = 1", machine=machine), result(speedup=speedup)))
    best = store.standings()[13].best
    assert best.median == 2.5


def test_entry_has_headline_clock_and_both_limits(store: Store) -> None:
    both = Speedup(call=Interval(1.1, 0.6, 2.0), device=Interval(1.2, 1.1, 1.3))
    told = msgspec.structs.replace(result(speedup=1.0, outcome="faster"), speedup=both, clock="device")
    store.record(record_of(header("a"), told))
    store.record(record_of(header("b", 2.0), result(Verdict.CRASH)))
    entry = entry_in(store, "a")
    assert (entry.clock, entry.interval) == ("device", both.device)
    assert (entry.detectable("device") or 99) < 20 < (entry.detectable("call") or 0)
    assert [each.run_id for each in store.last_timed(9)] == ["a"]


def journal(paths: Paths, run_id: str) -> None:
    paths.runs.mkdir(parents=True, exist_ok=True)
    written = Journal(paths.runs / f"{run_id}.jsonl", header(run_id), lambda error: None)
    written.append(Finished(run_id=run_id, sha256="ab" * 32, result=result()))
    written.close()


def test_an_index_of_other_fields_is_made_anew(paths: Paths) -> None:
    journal(paths, "a")
    Store(paths.database, paths.runs).close()
    with closing(sqlite3.connect(paths.database)) as index:
        index.execute("drop table run")
        index.execute("pragma user_version = 7")
    assert [entry.run_id for entry in Store(paths.database, paths.runs).history(13)] == ["a"]


def test_opening_adds_runs_that_ended_since(paths: Paths) -> None:
    """As after the end of a process between a run's journal and the index."""
    Store(paths.database, paths.runs).close()
    journal(paths, "a")
    path = paths.runs / "b.jsonl"
    unfinished = Journal(path, header("b", 2.0), lambda error: None)
    assert [entry.run_id for entry in Store(paths.database, paths.runs).history(13)] == ["a"]
    unfinished.append(Finished(run_id="b", sha256="ab" * 32, result=result()))
    unfinished.close()
    assert [entry.run_id for entry in Store(paths.database, paths.runs).history(13)] == ["b", "a"]


def test_killed_longer_run_keeps_its_last_verdict(paths: Paths) -> None:
    paths.runs.mkdir(parents=True, exist_ok=True)
    killed = Journal(paths.runs / "b.jsonl", header("b", 2.0), lambda error: None)
    for speedup in (1.2, 1.3):
        killed.append(Judged(run_id="b", sha256="ab" * 32, result=result(speedup=speedup, outcome="faster")))
    killed.close()
    assert [entry.median for entry in Store(paths.database, paths.runs).history(13)] == [1.3]


def test_journal_that_is_known_is_not_read_again(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(paths, "a")
    (paths.runs / "junk.jsonl").write_text("not a journal\n")
    Store(paths.database, paths.runs).close()
    monkeypatch.setattr(index, "_read", None)
    assert [entry.run_id for entry in Store(paths.database, paths.runs).history(13)] == ["a"]


def damage(data: bytes, how: str) -> bytes:
    changed = bytearray(data)
    if how == "no UTF-8":
        at = changed.index(b"gemm_allreduce")
        changed[at : at + 2] = b"\xff\xfe"
    elif how == "an unknown verdict":
        at = changed.index(b"PASS")
        changed[at : at + 4] = b"PUSS"
    elif how == "no UTF-8 in the schema":
        changed[changed.index(b"problem_id") + 3] = 0xFF
    elif how == "an empty page":
        start = changed.index(b"gemm_allreduce") // 4096 * 4096
        changed[start : start + 4096] = bytes(4096)
    else:
        changed[18] = 7  # a version of SQLite that may only read
    return bytes(changed)


@pytest.mark.parametrize(
    "how", ["no UTF-8", "an unknown verdict", "no UTF-8 in the schema", "an empty page", "only readable"]
)
def test_damage_found_at_any_time_is_repaired(paths: Paths, how: str) -> None:
    journal(paths, "a")
    Store(paths.database, paths.runs).close()
    paths.database.write_bytes(damage(paths.database.read_bytes(), how))
    store = Store(paths.database, paths.runs)
    assert [entry.run_id for entry in store.entries("you")] == ["a"]
    store.record(record_of(header("b", 2.0), result()))
    assert store.entries("you")[0].run_id == "a"


def test_a_closed_index_is_not_damaged(paths: Paths) -> None:
    store = Store(paths.database, paths.runs)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.record(record_of(header("b", 2.0), result()))


def test_index_that_another_process_repaired_is_opened_anew(paths: Paths) -> None:
    journal(paths, "a")
    store = Store(paths.database, paths.runs)
    paths.database.rename(paths.data / "elsewhere")
    other = Store(paths.database, paths.runs)
    store.record(record_of(header("b", 2.0), result()))
    assert [entry.run_id for entry in other.entries("you")] == ["a", "b"]


def test_unwritten_run_is_added_when_index_opens(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_BUSY_S", 0.01)
    store = Store(paths.database, paths.runs)
    journal(paths, "a")
    with closing(sqlite3.connect(paths.database)) as other:
        other.execute("begin exclusive")
        with pytest.raises(StoreError, match="locked") as caught:
            store.record(record_of(header("a"), result()))
    assert "end the program that holds it" in caught.value.advice
    assert store.entries("you") == []
    assert [entry.run_id for entry in Store(paths.database, paths.runs).entries("you")] == ["a"]


def test_kernel_is_kept_when_result_cannot_be_stored(paths: Paths) -> None:
    paths.database.mkdir(parents=True)
    notices: list[Notice] = []

    async def record() -> None:
        recorder = ResultRecorder(paths, None, notices.append)
        recording = recorder.start(header("a"), result())
        assert recording is not None
        await recording

    asyncio.run(record())
    assert [notice.message for notice in notices] == [f"cannot open {paths.database}: unable to open database file"]
    assert Workspace(paths.workspace).kernel(content_hash("code_of_a = 1")) is not None


OPEN_AT_ONCE = """
import sys
from pathlib import Path
from arena.records.index import Store
print("ready", flush=True)
sys.stdin.readline()
store = Store(Path(sys.argv[1]), Path(sys.argv[2]))
print(len(store.history(13)))
"""


def test_processes_opening_a_damaged_index_find_it_whole(paths: Paths) -> None:
    for number in range(20):
        journal(paths, f"a{number}")
    paths.database.write_bytes(b"this is no database" * 100)
    command = [sys.executable, "-c", OPEN_AT_ONCE, str(paths.database), str(paths.runs)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=PATIENCE_S) for process in started]
    assert [out.strip() for out, _ in told] == ["20"] * 4, told


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
    newest_first.append(record("noisy", outcome="too noisy", contender_us=Microseconds(1.0, None), clock="call"))
    assert best_times(newest_first) == [100.0, 100.0, 90.0, 90.0]


def test_the_last_note_of_a_revision_counts(tmp_path: Path) -> None:
    for sha256, note in ((A, "ring=1"), (B, "tree"), (A, "ring=2\nand [b]"), (B, "")):
        write_note(tmp_path, sha256, note)
    with (tmp_path / NOTES).open("ab") as file:
        file.write(b"damaged\n")
    assert read_notes(tmp_path) == {A: "ring=2 and [b]", B: ""}


def test_board_prints_the_columns_of_the_table(paths: Paths, pkb_arena) -> None:
    ran(paths, "r1", "def solution(): ...", 1.5)
    shown = pkb_arena("board", "--runs", "1", "--csv")
    rows = list(csv.reader(shown.stdout.splitlines()))
    assert rows[0] == list(HEADINGS)
    assert dict(zip(*rows, strict=True))["speedup"] == "1.500"
    ran(paths, "r2", "def solution(): ...  # 2", 0.0)
    lines = pkb_arena("board", "--runs", "1").stdout.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[0] for line in lines if line] == ["when", *[lines[1].split()[0]] * 2] * (len(lines) // 3)
    assert sum("✗ WRONG" in line for line in lines) == sum("✓ PASS" in line for line in lines) == 1


def test_kernel_ranks_by_low_end_of_measurements() -> None:
    found = {
        "lucky": Measurement("a", Interval(3.06, 2.9, 3.2), "call"),
        "usual": Measurement("a", Interval(1.25, 1.2, 1.3), "call"),
        "again": Measurement("a", Interval(1.2, 1.13, 1.27), "call"),
        "by device": Measurement("a", Interval(9.0, 8.9, 9.1), "device"),
        "other": Measurement("b", Interval(1.3, 1.25, 1.35), "call"),
        "wide": Measurement("c", Interval(5.0, 1.0, 25.0), "call"),
    }
    kernels = ranked(["untimed", *found], found.get)
    assert [kernel.item for kernel in kernels] == ["other", "usual", "wide"]
    assert kernels[1].speedup == Interval(1.25, 1.2, 1.3)
    assert kernels[1].items == ("lucky", "usual", "again", "by device")


def test_a_useless_measurement_never_outweighs_a_good_one() -> None:
    good, useless = Interval(7.02, 5.78, 8.54), Interval(3.85, 2.89, 3289.0)
    for order in ((good, useless), (useless, good), (useless, useless, good, useless)):
        (kernel,) = ranked(order, lambda speedup: Measurement("a", speedup, "call"))
        assert (kernel.item, kernel.speedup, kernel.pooled) == (good, good, (good,))


KERNEL = "def solution(x):\n    if x:\n        return x\n    return 0\n"
CUDA = 'SOURCE = """\n#define TILE 4\n"""\n'


@pytest.mark.parametrize(
    "same",
    [
        "# a comment\n" + KERNEL,
        KERNEL.replace("\n", "\n\n"),
        KERNEL.replace("if x:", "if x:\n  # why"),
        KERNEL.rstrip("\n"),
        KERNEL.replace("\n", "  \n"),
        KERNEL.replace("\n", "\r\n"),
        KERNEL.replace("\n", "\r"),
        "\ufeff" + KERNEL,
    ],
)
def test_blank_and_comment_lines_are_no_code(same: str) -> None:
    assert code_hash(same) == code_hash(KERNEL)


@pytest.mark.parametrize(
    "other",
    [
        KERNEL.replace("return 0", "return 1"),
        KERNEL.replace("    return 0", "        return 0"),
        KERNEL.replace("return 0", "return '# 0'"),
        '"text"\n' + KERNEL,
        "def broken(:",
        "def solution(x:\n",
        "",
        "\ud800",
        "f'{" * 9000,
        "(" * 9000,
    ],
)
def test_other_code_has_another_hash(other: str) -> None:
    assert code_hash(other) != code_hash(KERNEL)


def test_lines_of_strings_and_other_files_are_code() -> None:
    assert code_hash(CUDA) != code_hash(CUDA.replace("4", "8"))
    assert code_hash(f"# tile\n{CUDA}") == code_hash(CUDA)
    assert code_hash(Kernel(KERNEL, {"a.py": b"x = 1\n# why\n"})) == code_hash(Kernel(KERNEL, {"a.py": b"x = 1\n"}))
    assert code_hash(Kernel(KERNEL, {"a.cu": b"#define X 1\n"})) != code_hash(Kernel(KERNEL, {"a.cu": b""}))
    assert code_hash(KERNEL + "#\n" * LONGEST) != code_hash(KERNEL)  # too long to be read as Python
