"""Bundles: what is written, what another arena imports, what it refuses, damaged files included; and the reward."""

import io
import json
import math
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest
from damage import flips
from fixed_examples import examples
from forked_programs import CommandLine, answer_of, fails
from hypothesis import given
from hypothesis import strategies as st
from stored_runs import SETTING, cell_result, ran, record

from arena.api import reward
from arena.board.gathering import gather
from arena.errors import ArenaError, FolderUnwritable, UsageError
from arena.export import bundle as bundle_manifest
from arena.export.attempts import gather_attempts
from arena.export.bundle import MANIFEST, ShownPlayers, export_bundle, import_bundle, read_manifest, sha256_of
from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.paths import Paths, paths_in
from arena.records.code_hash import code_hash
from arena.records.json_lines import append_line
from arena.records.run_record import RunRecord
from arena.records.voids import Void
from arena.sweep.journal import SweepJournal, read_lines
from arena.sweep.records import Cell, CellResult, SweepPlan, SweepSession, Written
from arena.workspace.kernels import Workspace, content_hash, read_kernel
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Interval, Speedup
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue()
KERNEL = "def solution(tensor):\n    return tensor  # größer\n"
HERE = Machine("a small box", "", "2.9", "gloo")


def report(verdict: Verdict = Verdict.PASS, low: float = 1.4, **more: object) -> RunRecord:
    speedup = Speedup(call=Interval(low + 0.1, low, low + 0.2), device=Interval(9.0, 8.0, 10.0))
    known: dict[str, object] = {"kernel": "/home/me/kernel.py", "verdict": verdict, "speedup": speedup, "clock": "call"}
    return record("r", outcome="faster", **(known | more))


def written_sweep(paths: Paths) -> Paths:
    """Writes a sweep with one result of a user's folder, whose kernel is in the journal, and the trace of its player."""
    journal = SweepJournal(paths.sweeps / "spring.jsonl", "spring")
    player = "file:/home/me/secret-project/mine"
    plan = SweepPlan(players=[player], problems=["allreduce"])
    journal.append(SweepSession(at=time.time(), plan=plan, machines=[HERE], arena="0"))
    cell = Cell(slug="allreduce", setting=SETTING, player=player, attempt=1, catalogue="v")
    paid = Spent(10, 20, 0.5)
    journal.append(Written(cell=cell, source=KERNEL, file_name="k.py", reason="", spent=paid, trace_id="t1"))
    sha256 = content_hash(KERNEL)
    more = {"sha256": sha256, "code": code_hash(KERNEL), "machine": HERE.digest, "spent": paid, "trace_id": "t1"}
    for at, verdict in ((1.0, Verdict.HARNESS_ERROR), (2.0, Verdict.PASS)):
        key = cell.key(sha256, HERE.digest)
        journal.append(cell_result(cell, verdict.value, at=at, key=key, report=report(verdict), **more))
    journal.close()
    paths.traces.mkdir(parents=True)
    header = {"type": "trace", "setting": {"problem_dir": "/home/me/problems/collective/allreduce", "preset": "tiny"}}
    (paths.traces / "t1.jsonl").write_text(json.dumps(header) + '\n{"type":"asked"}\n')
    return paths


@pytest.fixture
def sweep(paths: Paths) -> Paths:
    return written_sweep(paths)


def test_bundle_has_each_result_once_without_local_paths(sweep: Paths, tmp_path: Path) -> None:
    manifest = export_bundle(sweep, CATALOGUE, tmp_path / "b")
    (row,) = (json.loads(line) for line in (tmp_path / "b" / "results.jsonl").read_text().splitlines())
    assert (row["verdict"], row["player"], row["machine"]) == ("PASS", "file:mine", str(HERE))
    assert (row["speedup_low"], row["reward"]) == (1.4, pytest.approx(math.log2(1.4)))
    assert (tmp_path / "b" / "kernels" / f"{row['sha256']}.py").read_text() == KERNEL
    header, asked = (json.loads(line) for line in (tmp_path / "b/traces/t1.jsonl").read_text().splitlines())
    assert (header["setting"], asked) == ({"problem_dir": "", "preset": "tiny"}, {"type": "asked"})
    assert manifest.results == 1
    for path in (tmp_path / "b").rglob("*"):
        assert not path.is_file() or b"/home/me" not in path.read_bytes(), path
    with pytest.raises(UsageError, match="not empty"):
        export_bundle(sweep, CATALOGUE, tmp_path / "b")


def test_runs_without_a_sweep_are_exported(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: object
) -> None:
    monkeypatch.setattr("arena.export.bundle.this_machine", lambda device: HERE)
    ran(paths, "20261128-060000-00000001", KERNEL, 1.5, machine=HERE.digest)
    ran(paths, "20261128-060000-00000002", KERNEL, 2.5, player="file:/home/me/mine", created=2.0)
    append_line(paths.voids, Void(at=1.0, run="20261128-060000-00000002", note="copied", by="anna"))
    paths.traces.mkdir(parents=True)
    (paths.traces / "t1.jsonl").write_text('{"type":"trace","player":"file:/home/me/mine"}\n')
    assert export_bundle(paths, CATALOGUE, tmp_path / "b").results == 2
    rows = [json.loads(line) for line in (tmp_path / "b" / "results.jsonl").read_text().splitlines()]
    assert rows == snapshot
    assert (tmp_path / "b" / "traces" / "t1.jsonl").read_text() == '{"type":"trace","player":"file:mine"}\n'
    assert (tmp_path / "b" / "kernels" / f"{content_hash(KERNEL)}.py").read_text() == KERNEL
    assert "2 results of single runs" in (tmp_path / "b" / "README.md").read_text()
    with pytest.raises(UsageError, match="single runs only"):
        import_bundle(paths, tmp_path / "b")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_data_card_names_table_as_data_sets_do(sweep: Paths, tmp_path: Path, form: str) -> None:
    """`datasets.load_dataset(DIR)` reads this; otherwise it mixes the table with journals and traces."""
    if form == "parquet":
        pytest.importorskip("pyarrow")
    export_bundle(sweep, CATALOGUE, tmp_path / "b", form=form)
    first, begin, *_ = (tmp_path / "b" / "README.md").read_text().split("---\n")
    assert first == ""
    assert begin.startswith(f"configs:\n- config_name: default\n  data_files: results.{form}\ndataset_info:\n")
    assert "  - name: speedup\n    dtype: float64\n" in begin
    datasets = pytest.importorskip("datasets")
    (row,) = datasets.load_dataset(str(tmp_path / "b"))["train"]
    assert (row["player"], row["verdict"]) == ("file:mine", "PASS")


def test_folders_of_the_same_name_stay_different_players(sweep: Paths, tmp_path: Path) -> None:
    first = (sweep.sweeps / "spring.jsonl").read_bytes()
    for name, folder in (("summer", b"/elsewhere/mine"), ("autumn", b"/home/me/secret-project/mine")):
        (sweep.sweeps / f"{name}.jsonl").write_bytes(first.replace(b"/home/me/secret-project/mine", folder))
    export_bundle(sweep, CATALOGUE, tmp_path / "b", ["spring", "summer", "autumn"])
    rows = (json.loads(line) for line in (tmp_path / "b" / "results.jsonl").read_text().splitlines())
    players = {row["sweep"]: row["player"] for row in rows}
    assert players == {"spring": "file:mine", "summer": "file:mine-2", "autumn": "file:mine"}
    for name, player in players.items():
        lines = read_lines(tmp_path / "b" / "sweeps" / f"{name}.jsonl")
        assert {line.cell.player for line in lines if isinstance(line, CellResult)} == {player}
    attempts, _ = gather_attempts(sweep, ["spring", "summer"])
    assert [attempt.player for attempt in attempts] == ["file:mine", "file:mine-2"]


def test_an_agent_program_is_shown_without_its_folder() -> None:
    players = ShownPlayers()
    assert players.of("agent:/home/me/secret-project/agent.py --fast") == "agent:agent.py --fast"
    assert players.of("agent:/home/me/other/agent.py --fast") == "agent:agent.py --fast-2"
    for known in ("agent:codex", "model:m", "you", "agent:codex --in /tmp"):
        assert players.of(known) == known


def test_a_bundle_has_all_files_of_a_kernel(sweep: Paths, tmp_path: Path) -> None:
    kernel = Kernel(KERNEL, {"ops/sum.cu": b"// sum"})
    Workspace(sweep.workspace).keep_revision(kernel.source, kernel.files)
    path = sweep.sweeps / "spring.jsonl"
    path.write_bytes(path.read_bytes().replace(content_hash(KERNEL).encode(), kernel.sha256.encode()))
    manifest = export_bundle(sweep, CATALOGUE, tmp_path / "b")
    assert f"kernels/{kernel.sha256}/ops/sum.cu" in manifest.files
    assert read_kernel(tmp_path / "b/kernels" / kernel.sha256).kernel == kernel
    false = msgspec.json.encode(msgspec.structs.replace(manifest, results=99))
    (tmp_path / "b" / "manifest.json").write_bytes(false)
    assert import_bundle(paths_in(tmp_path / "there"), tmp_path / "b")[1] == manifest.results == 1


def test_another_arena_shows_it_as_from_elsewhere(
    sweep: Paths, tmp_path: Path, pkb_arena: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_bundle(sweep, CATALOGUE, tmp_path / "b")
    there = tmp_path / "there"
    monkeypatch.setenv("PKB_ARENA_HOME", str(there))
    (name,) = answer_of(pkb_arena("import", str(tmp_path / "b"), "--json"))["sweeps"]
    board = pkb_arena("board").stdout
    assert f"from elsewhere ({name})" in board
    assert "file:mine" in board
    assert pkb_arena("sweep", "--resume").returncode == 2  # it is on the board but cannot be resumed


def test_voided_results_are_voided_elsewhere_too(sweep: Paths, tmp_path: Path) -> None:
    append_line(sweep.voids, Void(at=1.0, code=code_hash(KERNEL), note="copied", by="anna"))
    export_bundle(sweep, CATALOGUE, tmp_path / "b")
    (row,) = (json.loads(line) for line in (tmp_path / "b" / "results.jsonl").read_text().splitlines())
    assert (row["verdict"], row["voided"], row["reward"]) == ("PASS", "copied", 0.0)
    there = paths_in(tmp_path / "there")
    import_bundle(there, tmp_path / "b")
    card = gather(there, CATALOGUE).cards[0]
    assert (card.solved, card.voided) == (0, 1)
    assert not there.voids.exists()  # voids of others count for their results alone


def test_changed_bundle_is_refused(sweep: Paths, tmp_path: Path) -> None:
    export_bundle(sweep, CATALOGUE, tmp_path / "b")
    elsewhere = paths_in(tmp_path / "there")
    journal = tmp_path / "b" / "sweeps" / "spring.jsonl"
    whole = journal.read_bytes()
    journal.unlink()
    with pytest.raises(UsageError, match="missing"):
        import_bundle(elsewhere, tmp_path / "b")
    journal.write_bytes(whole)
    manifest = read_manifest(tmp_path / "b")
    outside = tmp_path / "outside"
    outside.write_text("x")
    files = manifest.files | {"../outside": content_hash("x")}
    (tmp_path / "b" / "manifest.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, files=files)))
    with pytest.raises(UsageError, match="outside is missing"):
        import_bundle(elsewhere, tmp_path / "b")
    (tmp_path / "b" / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="is no bundle"):
        import_bundle(elsewhere, tmp_path / "b")
    assert not elsewhere.imports.exists()


def test_what_is_imported_is_what_was_checked(sweep: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = export_bundle(sweep, CATALOGUE, tmp_path / "b")
    journal = tmp_path / "b" / "sweeps" / "spring.jsonl"
    opened = bundle_manifest.open_bounded

    def forged_later(path: Path, most: int) -> IO[bytes]:
        whole = io.BytesIO(opened(path, most).read())
        if path == journal:
            path.write_bytes(path.read_bytes().replace(b"HARNESS_ERROR", b"PASS"))
        return whole

    monkeypatch.setattr(bundle_manifest, "open_bounded", forged_later)
    there = paths_in(tmp_path / "there")
    (name,), _ = import_bundle(there, tmp_path / "b")
    assert b"HARNESS_ERROR" not in journal.read_bytes()
    assert sha256_of(there.imports / f"{name}.jsonl") == manifest.files["sweeps/spring.jsonl"]


def test_no_space_leaves_nothing_of_an_import(sweep: Paths, tmp_path: Path) -> None:
    first = sweep.sweeps / "spring.jsonl"
    (sweep.sweeps / "winter.jsonl").write_bytes(first.read_bytes() + first.read_bytes().splitlines(True)[-1] * 30)
    export_bundle(sweep, CATALOGUE, tmp_path / "b")
    there = paths_in(tmp_path / "there")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (first.stat().st_size + 100, hard))
    try:
        with pytest.raises(FolderUnwritable):
            import_bundle(there, tmp_path / "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not there.imports.exists()
    assert not list(there.imports.parent.glob(".import-*"))


@pytest.mark.parametrize("name", ["manifest.json", "sweeps/spring.jsonl"])
@pytest.mark.parametrize("kind", ["endless", "fifo", "link"])
def test_only_plain_files_are_imported(sweep: Paths, tmp_path: Path, name: str, kind: str) -> None:
    export_bundle(sweep, CATALOGUE, tmp_path / "b")
    path = tmp_path / "b" / name
    path.rename(tmp_path / "b" / "aside")
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "endless" else tmp_path / "b" / "aside")
    with pytest.raises(UsageError):
        import_bundle(paths_in(tmp_path / "there"), tmp_path / "b")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (report(low=2.0), 1.0),
        (report(low=1.0), 0.0),
        (report(low=0.5), 0.0),
        (report(low=100.0), 4.0),
        (report(Verdict.WRONG_RESULT, low=8.0), 0.0),
        (report(clock="device"), 3.0),
        (report(speedup=None), 0.0),
    ],
)
def test_the_reward(given: RunRecord, expected: float) -> None:
    assert reward(given) == pytest.approx(expected)


def test_the_reward_s_range_is_the_callers() -> None:
    assert reward(report(low=0.5), low=-2.0) == pytest.approx(-1.0)
    assert reward(report(low=100.0), high=2.0) == 2.0


def test_mistakes_with_bundles_are_one_error_each(pkb_arena: CommandLine, sweep: Paths, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert "of sweeps; single runs are left out" in pkb_arena("export", str(whole)).stdout
    odd = tmp_path / "odd"
    shutil.copytree(whole, odd)
    manifest = json.loads((odd / "manifest.json").read_text())
    manifest["files"]["kernels/a\0.py"] = "0" * 64
    (odd / "manifest.json").write_text(json.dumps(manifest))
    for code, arguments, words in (
        (2, ["import", str(odd)], "is missing"),
        (2, ["export", str(tmp_path / "new"), "--sweep", "nope"], "choose from spring"),
        (3, ["export", "/proc/nothing/here"], "name a place that can be written"),
    ):
        done = pkb_arena(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), done
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def test_damaged_sweep_is_found_before_anything_is_written(
    pkb_arena: CommandLine, sweep: Paths, tmp_path: Path
) -> None:
    with (sweep.sweeps / "spring.jsonl").open("a") as file:
        file.write("no line\n")
    fails(pkb_arena("export", str(tmp_path / "new")), 3, "spring.jsonl: line")
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    export_bundle(written_sweep(paths_in(folder / "home")), CATALOGUE, folder / "bundle")
    return folder / "bundle"


@pytest.fixture
def damaged(bundle: Path, tmp_path: Path) -> Callable[[str, bytes], Path]:
    """damaged(file, content): returns the bundle with this file changed; the next call restores the file."""
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    changed: list[str] = []

    def change(name: str, data: bytes) -> Path:
        while changed:
            last = changed.pop()
            (folder / last).write_bytes((bundle / last).read_bytes())
        (folder / name).write_bytes(data)
        changed.append(name)
        return folder

    return change


def taken(paths: Paths) -> Iterator[bytes]:
    return (path.read_bytes() for path in paths.imports.glob("*"))


Damaged = Callable[[str, bytes], Path]


@examples(150)
@given(st.data())
def test_file_with_wrong_byte_or_end_is_named(
    bundle: Path, damaged: Damaged, paths: Paths, data: st.DataObject
) -> None:
    files = sorted(str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file())
    name = data.draw(st.sampled_from([file for file in files if file != MANIFEST]))
    whole = (bundle / name).read_bytes()
    ends = st.integers(0, len(whole) - 1).map(lambda length: whole[:length])
    folder = damaged(name, data.draw(st.one_of(ends, flips(whole).map(lambda flip: flip.data))))
    with pytest.raises(UsageError, match="is not what the manifest says") as caught:
        import_bundle(paths, folder)
    assert name in caught.value.message
    assert not paths.imports.exists()


@examples(200)
@given(st.data())
def test_damaged_manifest_admits_exported_files_or_nothing(
    bundle: Path, damaged: Damaged, paths: Paths, data: st.DataObject
) -> None:
    whole = (bundle / MANIFEST).read_bytes()
    ends = st.integers(0, len(whole) - 1).map(lambda length: whole[:length])
    folder = damaged(MANIFEST, data.draw(st.one_of(ends, flips(whole).map(lambda flip: flip.data))))
    shutil.rmtree(paths.imports, ignore_errors=True)
    try:
        import_bundle(paths, folder)
    except ArenaError as error:
        error.message.encode()
        assert list(taken(paths)) == []
    else:
        assert list(taken(paths)) == [(bundle / "sweeps" / "spring.jsonl").read_bytes()]


def test_a_manifest_that_is_no_text_is_damaged(damaged: Damaged, paths: Paths) -> None:
    with pytest.raises(UsageError, match=r"its manifest\.json is damaged"):
        import_bundle(paths, damaged(MANIFEST, b'{"arena": "\xff"}'))
