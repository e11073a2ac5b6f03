"""Voided results stay in their journals but are in no ranking; after an undo they count again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from forked_programs import CommandLine
from stored_runs import SETTING, cell_result, duel_header, header, journal_of, passed, ran
from waiting import PATIENCE_S

from arena.board.gathering import gather
from arena.board.voiding import find_target, unvoid, void
from arena.duel.events import DuelEnded, Finalist, KernelJudged, Submitted, Winner
from arena.duel.journal import open_duel_journal, ratings, read_duels
from arena.errors import FolderUnwritable, MachineError, UsageError
from arena.paths import Paths
from arena.records.code_hash import code_hash
from arena.records.index import Store
from arena.records.json_lines import append_line
from arena.records.run_record import record_of
from arena.records.voids import NO_VOIDS, Void, read_voids
from arena.sweep.grid import SweepGrid
from arena.sweep.records import Cell, CellResult
from problems.catalogue import load_catalogue
from sandbox.protocol.verdict import Verdict

CHEAT, HONEST = "def solution(x):\n    return stolen\n", "def solution(x):\n    return x\n"


def attempt(number: int, source: str, speedup: float) -> CellResult:
    run_id = f"swept-{number}"
    cell = Cell(slug="allreduce", setting=SETTING, player="model:m", attempt=number, catalogue="v")
    return cell_result(
        cell,
        key=cell.key(source, "m"),
        sha256=header(run_id, source).sha256,
        code=code_hash(source),
        report=record_of(header(run_id, source, "model:m"), passed(speedup)),
    )


@pytest.fixture
def runs(paths: Paths) -> Paths:
    """Two runs of a cheat, which differ in comments alone, and a slower honest run."""
    ran(paths, "run-1", CHEAT, 9.0)
    ran(paths, "run-2", f"# again\n{CHEAT}", 8.0, created=2.0)
    ran(paths, "run-3", HONEST, 1.5, created=3.0)
    return paths


@pytest.fixture
def sweep(paths: Paths) -> Path:
    """A sweep with an attempt that cheats and one that does not."""
    return Path(journal_of(paths.sweeps / "spring.jsonl", attempt(1, CHEAT, 9.0), attempt(2, HONEST, 1.5)))


def best(paths: Paths) -> tuple[float | None, bool]:
    """The speedup of the best run, and whether the problem is solved."""
    store = Store(paths.database, paths.runs)
    try:
        standing, overall = store.standings()[1], store.best().get(1)
    finally:
        store.close()
    assert (standing.best and standing.best.run_id) == (overall and overall.best and overall.best.run_id)
    return standing.best.median if standing.best else None, standing.solved


def test_voided_run_leaves_standings_and_twin_stays(runs: Paths) -> None:
    void(runs, find_target(runs, "run-1"), "reads the expected output", "anna")
    assert best(runs) == (8.0, True)
    unvoid(runs, find_target(runs, "run-1"), "", "anna")
    assert best(runs) == (8.5, True)  # the median of both measurements of this code


@pytest.mark.parametrize("hashed", [code_hash(CHEAT), header("", CHEAT).sha256])
def test_voided_kernel_voids_all_results_of_its_code(runs: Paths, hashed: str) -> None:
    target = find_target(runs, hashed[:8])
    assert target.results == ["run-1", "run-2"]
    assert target.words == f"kernel {hashed[:8]} (2 results of you)"
    void(runs, target, "reads the expected output", "anna")
    assert best(runs) == (1.5, True)
    ran(runs, "run-4", f"# once more\n{CHEAT}", 9.5, created=4.0)
    runs.database.unlink()  # the index is rebuilt from the journals
    assert best(runs) == (1.5, True)
    store = Store(runs.database, runs.runs)
    notes = {entry.run_id: entry.voided.words if entry.voided else None for entry in store.history(1)}
    assert notes == dict.fromkeys(["run-4", "run-2", "run-1"], "voided by anna: reads the expected output") | {
        "run-3": None
    }
    unvoid(runs, find_target(runs, hashed), "", "anna")
    assert best(runs)[0] == 9.0


def test_problem_with_voided_results_alone_is_not_solved(runs: Paths) -> None:
    for run in ("run-1", "run-2", "run-3"):
        void(runs, find_target(runs, run), "wrong machine", "anna")
    assert best(runs) == (None, False)


def test_voided_attempt_of_sweep_counts_as_failed(paths: Paths, sweep: Path) -> None:
    catalogue = load_catalogue([])
    honest = gather(paths, catalogue).cards[0]
    void(paths, find_target(paths, "swept-1"), "reads the expected output", "anna")
    card = gather(paths, catalogue).cards[0]
    assert (honest.pass_1.value, honest.voided, card.pass_1.value, card.voided) == (1.0, 0, 0.5, 1)  # type: ignore[union-attr]
    assert (card.attempts, card.solved, round(card.speedup.value, 6)) == (2, 1, 1.5)


def test_sweep_result_has_names_by_key_run_kernel(paths: Paths, sweep: Path) -> None:
    result = attempt(1, CHEAT, 9.0)
    for word in (result.key, "swept-1"):
        assert find_target(paths, word).run == "swept-1"
    assert find_target(paths, code_hash(CHEAT)[:6]).code == code_hash(CHEAT)


def test_the_grid_of_a_sweep_shows_the_mark(paths: Paths, sweep: Path) -> None:
    void(paths, find_target(paths, code_hash(CHEAT)), "reads the expected output", "anna")
    grid = SweepGrid(read_voids(paths.voids))
    for line in (attempt(1, CHEAT, 9.0), attempt(2, HONEST, 1.5)):
        grid.apply(line)
    square = grid.squares["allreduce", "model:m"]
    assert (square.passed, square.best and square.best.attempt) == (1, 2)
    assert square.marks[1].voided == "voided by anna: reads the expected output"


def duel(paths: Paths, winner: Winner) -> None:
    made = duel_header("anna", "ben", "duel-1")
    journal = open_duel_journal(paths, made, lambda error: None)
    for side, source in (("left", CHEAT), ("right", HONEST)):
        journal.append(Submitted(side=side, attempt=1, sha256="", source=source))  # type: ignore[arg-type]
        journal.append(
            KernelJudged(
                side=side, attempt=1, run_id=f"of-{side}", verdict=Verdict.PASS, outcome="", speedup=None, detail=""  # type: ignore[arg-type]
            )
        )  # fmt: skip
    one = Finalist(1, "", Verdict.PASS, "", None, None)
    journal.append(DuelEnded(winner=winner, reason="", speedup=None, rounds=1, left=one, right=one))
    journal.close()


@pytest.mark.parametrize(
    ("winner", "word", "rated"),
    [
        ("left", "of-left", False),  # the run of the winner's kernel
        ("right", "of-left", True),  # a win over a voided kernel is a win
        ("draw", "of-left", False),
        ("right", "duel-1", False),
        ("left", "", False),  # the winner's code
    ],
)
def test_no_rating_rests_on_a_voided_kernel(paths: Paths, winner: Winner, word: str, rated: bool) -> None:
    duel(paths, winner)
    append_line(paths.voids, Void(at=1.0, run=word, code="" if word else code_hash(CHEAT), note="cheats", by="anna"))
    records, _ = read_duels(paths.duels, read_voids(paths.voids))
    assert bool(ratings(records)) == rated
    assert len(ratings(read_duels(paths.duels, NO_VOIDS)[0])) == 4


def test_a_voided_duel_is_listed_with_its_note(pkb_arena: CommandLine, paths: Paths) -> None:
    duel(paths, "left")
    assert pkb_arena("void", "duel-1", "--note", "played against itself", "--by", "anna").returncode == 0
    assert "anna vs ben: anna wins:" in (told := pkb_arena("duels").stdout)
    assert "voided by anna: played against itself" in told
    listed = json.loads(pkb_arena("duels", "--json").stdout)
    assert (listed["ratings"], listed["duels"][0]["voided"]["by"]) == ([], "anna")


def test_processes_that_void_at_same_time_lose_nothing(paths: Paths) -> None:
    code = (
        "import sys; from pathlib import Path; from arena.records.voids import Void\n"
        "from arena.records.json_lines import append_line\n"
        "for n in range(40): append_line(Path(sys.argv[1]), Void(at=1.0, note='n' * n, by='b', run=f'{sys.argv[2]}-{n}'))"
    )
    several = [subprocess.Popen([sys.executable, "-c", code, str(paths.voids), name]) for name in "abcd"]
    assert [process.wait(PATIENCE_S) for process in several] == [0] * 4
    voids = read_voids(paths.voids)
    assert (len(voids.runs), voids.damaged) == (160, "")


def test_ambiguous_and_unknown_words_are_refused(runs: Paths) -> None:
    for number in range(300):  # some share their first two characters, none its first six
        ran(runs, f"many-{number}", f"x = {number}\n", 1.0)
    with pytest.raises(UsageError, match="no result and no kernel 'ffffffff'"):
        find_target(runs, "ffffffff")
    with pytest.raises(UsageError, match="no result and no kernel"):
        find_target(runs, code_hash(CHEAT)[:5])
    with pytest.raises(UsageError, match="result run-1 is not voided") as refused:
        unvoid(runs, find_target(runs, "run-1"), "", "anna")
    assert refused.value.advice == "`pkb-arena void` lists what is"
    void(runs, find_target(runs, code_hash(CHEAT)), "cheats", "anna")
    with pytest.raises(UsageError) as refused:
        unvoid(runs, find_target(runs, "run-1"), "", "anna")
    assert f"void {code_hash(CHEAT)[:12]} --undo" in refused.value.advice


def test_torn_line_is_removed_and_damaged_one_named(paths: Paths, sweep: Path) -> None:
    void(paths, find_target(paths, "swept-1"), "one", "anna")
    with paths.voids.open("ab") as file:
        file.write(b"junk\n" + b'{"at":1.0,"note":"cut sh')
    assert read_voids(paths.voids).runs.keys() == {"swept-1"}
    void(paths, find_target(paths, "swept-2"), "two\x1b[31m\nlines", "anna")
    voids = read_voids(paths.voids)
    assert {name: line.note for name, line in voids.runs.items()} == {"swept-1": "one", "swept-2": "two lines"}
    assert "line 2 cannot be read" in voids.damaged
    assert [left.what for left in gather(paths, load_catalogue([])).left_out] == [voids.damaged]


def test_unusable_journal_of_voids_is_named(paths: Paths) -> None:
    paths.voids.mkdir(parents=True)
    with pytest.raises(MachineError, match=r"voids\.jsonl"):
        read_voids(paths.voids)
    with pytest.raises(FolderUnwritable):
        append_line(paths.voids, Void(at=1.0, note="n", by="b", run="r"))


def test_the_command_voids_lists_and_takes_back(pkb_arena: CommandLine, runs: Paths) -> None:
    done = pkb_arena("void", "run-1", "--note", "reads the expected output", "--by", "anna")
    assert (done.returncode, done.stdout) == (0, "result run-1 is voided by anna: reads the expected output\n")
    kernel = code_hash(f"file of {HONEST}")[:8]
    done = pkb_arena("void", kernel, "--note", "copied", "--json")
    told = json.loads(done.stdout)
    assert (told["code"], told["results"], told["voided"]) == (code_hash(HONEST), ["run-3"], True)
    listed = pkb_arena("void").stdout
    assert "result run-1: voided by anna: reads the expected output" in listed
    assert f"kernel {kernel} (1 result of you): voided by" in listed  # by the hash that was given
    assert "run-3  1 allreduce  you  PASS  1.50×  tiny · bfloat16 · world 2 · cpu" in listed
    assert "voided by anna" in pkb_arena("replay", "run-1").stdout
    assert pkb_arena("void", kernel, "--undo").returncode == 0
    assert [each["run_id"] for each in json.loads(pkb_arena("void", "--json").stdout)] == ["run-1"]
    assert pkb_arena("void", kernel, "--undo").returncode == 2
    for wrong in (["run-1"], ["nothing", "--note", "n"], ["--note", "n"], ["run-1", "--note", " "]):
        assert pkb_arena("void", *wrong).returncode == 2


def test_every_form_of_board_is_without_voided_results(pkb_arena: CommandLine, sweep: Path) -> None:
    assert pkb_arena("void", code_hash(CHEAT), "--note", "cheats").returncode == 0
    card = json.loads(pkb_arena("board", "--json").stdout)["scores"][0]
    assert (card["pass_1"]["value"], card["voided"]) == (0.5, 1)
    for form in ((), ("--markdown",), ("--csv",)):
        text = pkb_arena("board", *form).stdout
        assert "voided" in text
        assert "9.0" not in text.partition("published")[0]
