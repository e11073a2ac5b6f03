"""Stored bests are judged again: what fails today is reported, and voided on request."""

import json

import msgspec
import pytest
from forked_programs import CommandLine, fails
from scripted_referee import COMMAND as REFEREE
from stored_runs import header, passed, ran

from arena.board.recheck import FAILS, SLOWER, Recheck, Rechecker, bests
from arena.cli.recheck import _Findings
from arena.errors import MachineError
from arena.machine.facts import this_machine
from arena.paths import Paths
from arena.records.index import Store
from arena.records.run_record import RunRecord, record_of
from arena.records.voids import read_voids
from arena.runs.engine import Engine
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue([])


def stored(paths: Paths, player: str = "you") -> list[RunRecord]:
    store = Store(paths.database, paths.runs)
    try:
        return store.entries(player)
    finally:
        store.close()


async def rechecked(paths: Paths, void_by: str = "", **said: str) -> list[Recheck]:
    entries = stored(paths)
    async with Engine(paths, command=REFEREE, environment=said) as engine:
        rechecker = Rechecker(engine, paths, CATALOGUE, Settings(device="cpu"), void_by=void_by)
        await rechecker.start(entry.player for entry in entries)
        return [found for kernels in bests(entries) async for found in rechecker.recheck(kernels, entries)]


def test_bests_are_by_setting_with_fastest_first() -> None:
    def entry(run_id: str, source: str, fast: float, created: float = 1.0, **changes: object) -> RunRecord:
        return msgspec.structs.replace(record_of(header(run_id, source, created=created), passed(fast)), **changes)

    entries = [
        entry("slow", "a = 1", 1.2),
        entry("fast", "a = 2", 2.0),
        entry("fast-again", "# again\na = 2", 1.9, 2.0),
        entry("untimed", "a = 3", 1.0, 3.0, speedup=None),
        entry("other-dtype", "a = 1", 1.1, dtype="float32"),
        entry("wrong", "a = 4", 9.0, verdict=Verdict.WRONG_RESULT),
        entry("other-sizes", "a = 5", 9.0, preset_sizes=False),
        entry("only-another-dtype", "a = 5", 9.0, dtype="float16", other_than="fast"),
    ]
    assert [[each.run_id for each in kernels] for kernels in bests(entries)] == [
        ["fast", "slow", "untimed"],
        ["other-dtype"],
    ]


async def test_best_that_fails_today_is_reported_unchanged(paths: Paths) -> None:
    ran(paths, "cheat", "wrong", 9.0)
    ran(paths, "honest", "pass", 1.5)
    (found,) = await rechecked(paths)
    assert (found.change, found.failed, found.voided) == (FAILS, True, [])
    assert found.before.run_id == "cheat"
    assert found.after.verdict is Verdict.WRONG_RESULT
    assert (paths.runs / f"{found.after.run_id}.jsonl").exists()  # it is a run like any other
    assert not read_voids(paths.voids)


async def test_void_marks_results_and_judges_next_best(paths: Paths) -> None:
    ran(paths, "cheat", "wrong", 9.0)
    ran(paths, "cheat-again", "wrong\n# as before", 8.0, created=2.0)
    ran(paths, "honest", "pass", 1.5)
    ran(paths, "another", "pass\nx = 1", 1.2)
    failed, honest = await rechecked(paths, "anna")
    assert failed.voided == ["cheat", "cheat-again"]
    assert (honest.before.run_id, honest.change) == ("honest", "")  # it passes, so that the slower one is not judged
    note = read_voids(paths.voids).runs["cheat"].words
    assert note.startswith("voided by anna: recheck by pkb-arena ")
    assert "WRONG_RESULT: all right" in note
    store = Store(paths.database, paths.runs)
    best = store.standings()[1].best
    assert best.code == record_of(header("", "pass"), passed(1.0)).code


@pytest.mark.parametrize(("machine", "change"), [("", SLOWER), ("another", "")])
async def test_speeds_are_compared_on_the_same_machine(paths: Paths, machine: str, change: str) -> None:
    ran(paths, "was-faster", "pass", 1.5, machine=machine or this_machine("cpu").digest)
    (found,) = await rechecked(paths, PKB_SCRIPTED_OUTCOME="even")
    assert (found.change, found.failed) == (change, False)


async def test_speeds_that_were_not_compared_are_counted(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    ran(paths, "was-faster", "pass", 1.5, machine=this_machine("cpu").digest)
    (noisy,) = await rechecked(paths, PKB_SCRIPTED_OUTCOME="too noisy")
    (same,) = await rechecked(paths, PKB_SCRIPTED_OUTCOME="faster")
    assert (noisy.change, noisy.compared) == ("", False)
    assert (same.change, same.compared) == ("", True)
    for rechecks, said in (
        ([noisy, same], "2 judged again, all pass, 1 speed not compared: too noisy, not timed, or of another machine"),
        ([same], "1 judged again, nothing changed"),
    ):
        _Findings(total=len(rechecks), whole=True, rechecks=rechecks).show(as_json=False)
        assert capsys.readouterr().out.strip() == said


async def test_what_cannot_be_judged_says_why(paths: Paths) -> None:
    ran(paths, "gone", "pass", 1.5)
    ran(paths, "refused", "refuse", 1.5)
    stored(paths)  # builds the index
    (paths.runs / "gone.jsonl").unlink()
    (found,) = await rechecked(paths)
    assert (found.after, found.failed) == (None, False)
    assert found.left_out == "the journal of run gone cannot be read: No such file or directory"


async def test_judge_that_does_not_come_back_ends_recheck(paths: Paths) -> None:
    ran(paths, "dies", "die", 1.5)
    (found,) = await rechecked(paths)
    assert found.left_out.startswith("harness error: ")
    entries = [msgspec.structs.replace(stored(paths)[0], dtype=dtype) for dtype in ("bfloat16", "float32", "float16")]
    async with Engine(paths, command=REFEREE) as engine:
        rechecker = Rechecker(engine, paths, CATALOGUE, Settings(device="cpu"))

        async def recheck() -> None:
            for kernels in bests(entries):
                _ = [each async for each in rechecker.recheck(kernels, entries)]

        with pytest.raises(MachineError, match="3 harness errors in a row"):
            await recheck()


def test_command_names_what_is_wrong_with_call(pkb_arena: CommandLine, paths: Paths) -> None:
    done = pkb_arena("recheck", "--json")
    assert (done.returncode, json.loads(done.stdout)["total"]) == (0, 0)
    ran(paths, "honest", "pass", 1.5)
    fails(pkb_arena("recheck", "model:nobody"), 2, "choose from you")
