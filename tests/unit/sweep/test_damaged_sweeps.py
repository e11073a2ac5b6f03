"""Journals of sweeps that end early or have a wrong byte: whole lines, then one error. A torn last line is legal."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from damage import Flip, flips
from fixed_examples import examples
from hypothesis import given
from hypothesis import strategies as st
from stored_runs import cell_result

from arena.board.gathering import gather
from arena.errors import ArenaError, UsageError
from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.paths import Paths
from arena.records.json_lines import Follower
from arena.sweep import journal as journals
from arena.sweep.records import AnyLine, Cell, CellResult, SweepOpened, SweepPlan, SweepSession, Unanswered, Written
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Setting

HERE = Machine("a small box", "", "2.9", "gloo")
PAID = Spent(10, 20, 0.5)
PLAN = SweepPlan(players=["agent:s"], problems=["allreduce"])


def cell(attempt: int) -> Cell:
    setting = Setting("", "tiny", {"M": 8}, 2, "cpu", "float32")
    return Cell(slug="allreduce", setting=setting, player="agent:s", attempt=attempt, catalogue="v")


def result(attempt: int, verdict: str) -> CellResult:
    where = cell(attempt)
    return cell_result(
        where,
        verdict,
        at=float(attempt),
        key=where.key("0", HERE.digest),
        sha256="0",
        machine=HERE.digest,
        detail="größer 😀",
        spent=PAID,
    )


def answer(attempt: int) -> Written:
    return Written(cell=cell(attempt), source="ü", file_name="k.py", reason="", spent=PAID, trace_id="")


LINES: list[AnyLine] = [
    SweepOpened(at=1.0, name="c"),
    SweepSession(at=1.0, plan=PLAN, machines=[HERE], arena="0"),
    answer(1),
    result(1, "HARNESS_ERROR"),
    result(1, "PASS"),
    answer(2),
    Unanswered(cell=cell(3), why="no answer: 503", spent=PAID),
    result(2, "WRONG_RESULT"),
]
WHOLE = b"".join(msgspec.json.encode(line) + b"\n" for line in LINES)


def written(paths: Paths, data: bytes) -> Path:
    paths.sweeps.mkdir(parents=True, exist_ok=True)
    path = paths.sweeps / "c.jsonl"
    path.write_bytes(data)
    return path


def followed(path: Path) -> Iterator[AnyLine]:
    follower = Follower(path)
    while lines := journals.new_lines(follower):
        yield from lines


@examples(100)
@given(st.integers(0, len(WHOLE)))
def test_sweep_whose_last_line_is_torn_goes_on(paths: Paths, length: int) -> None:
    path = written(paths, WHOLE[:length])
    there = LINES[: WHOLE[:length].count(b"\n")]
    assert list(journals.read_lines(path)) == list(followed(path)) == there
    journal = journals.open_journal(paths, "c", resume=True)
    judged = [line.cell.attempt for line in there if isinstance(line, CellResult) and line.final]
    assert [n for n in (1, 2, 3) if journal.is_done(cell(n), "0", HERE.digest)] == judged
    assert not any(journal.is_done(cell(n), "another", HERE.digest) for n in (1, 2, 3))
    assert journal.written(cell(2).digest) == (answer(2) if answer(2) in there else None)
    assert journal.spent.usd == 0.5 * sum(isinstance(line, Written | Unanswered) for line in there)
    journal.append(result(3, "PASS"))
    journal.close()
    found = list(journals.read_lines(path))
    assert found[len(there) or 1 :] == [result(3, "PASS")]
    assert isinstance(found[0], SweepOpened)
    assert (journals.last_plan(path) is not None) == (len(there) > 1)


@examples(100)
@given(flips(WHOLE))
def test_a_damaged_sweep_is_left_as_it_is(paths: Paths, flip: Flip) -> None:
    path = written(paths, flip.data)
    try:
        journals.plan_to_go_on(paths, "c")
        journals.SweepJournal(path, "c").close()
    except ArenaError:
        assert path.read_bytes() == flip.data
    else:
        assert flip.data.startswith(path.read_bytes())


def test_older_sweep_does_not_replace_damaged_one(paths: Paths) -> None:
    damaged = written(paths, WHOLE + b"???\n" + msgspec.json.encode(LINES[-1]) + b"\n")
    older = paths.sweeps / "older.jsonl"
    older.write_bytes(WHOLE)
    os.utime(older, (1.0, 1.0))
    for name in ("", "c"):
        with pytest.raises(journals.JournalDamaged, match="line 9 is no line") as found:
            journals.plan_to_go_on(paths, name)
        assert "remove that line" in found.value.advice
    with pytest.raises(journals.JournalDamaged):
        journals.same_plan(paths, PLAN)
    for data in (b"?" + WHOLE, WHOLE.partition(b"\n")[2]):
        damaged.write_bytes(data)
        with pytest.raises(journals.JournalDamaged, match="line 1 is no line"):
            journals.plan_to_go_on(paths, "")
    damaged.unlink()
    damaged.symlink_to("nowhere")
    assert journals.plan_to_go_on(paths, "") == ("older", PLAN)
    with pytest.raises(UsageError, match="no sweep 'oldest'"):  # not the newest one instead
        journals.plan_to_go_on(paths, "oldest")
    assert journals.same_plan(paths, PLAN) == "older"
    assert [path.name for path in journals.journals(paths.sweeps)] == ["older.jsonl", "c.jsonl"]
    for path, stays in ((older, True), (paths.sweeps / "new.jsonl", False)):
        journals.SweepJournal(path, path.stem).leave()
        assert path.exists() == stays


def test_a_board_names_a_link_to_nothing(paths: Paths) -> None:
    written(paths, WHOLE)
    (paths.sweeps / "link.jsonl").symlink_to("nowhere")
    found = gather(paths, load_catalogue([]))
    assert [card.player for card in found.cards] == ["agent:s"]
    assert ["link.jsonl: No such file" in left.what for left in found.left_out] == [True]


def test_names_of_sweeps(tmp_path: Path) -> None:
    for name in ("x" * 80, "a-b_c.1"):
        assert journals.sweep_path(tmp_path, name) == tmp_path / f"{name}.jsonl"
    for name in ("", "a/b", ".x", "x" * 81, "a b"):
        with pytest.raises(UsageError, match="cannot be a sweep's name"):
            journals.sweep_path(tmp_path, name)
