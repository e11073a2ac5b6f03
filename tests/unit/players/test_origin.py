"""A kernel to improve: how it is named, what the prompt says about it, and the run of the new kernel against it."""

from pathlib import Path

import msgspec
import pytest
from scripted_referee import COMMAND as REFEREE

from arena.board.gathering import gather
from arena.board.tables import improved_words
from arena.errors import UsageError
from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import Finish
from arena.paths import Paths
from arena.players.attempts import Attempt
from arena.players.judge_access import JudgeAccess
from arena.players.player import Task
from arena.players.prompt import build_prompt
from arena.profile.profile_process import Profiled, ProfileRequest
from arena.profile.profiling import keep_profile, kept_profile
from arena.profile.rules import figures
from arena.records.header import read_header
from arena.records.index import Store
from arena.records.json_lines import append_line
from arena.records.voids import Void
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest
from arena.runs.origin import Origin, find_origin
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.profile import RankProfile, Span

CATALOGUE = load_catalogue()
PROBLEM = CATALOGUE.find("1")
SETTING = choose_setting(PROBLEM, Choice(device="cpu", preset="tiny"), Settings())


def find(word: str, paths: Paths, problem: str = "1") -> Origin:
    return find_origin(word, CATALOGUE.find(problem), SETTING, CATALOGUE, paths)


async def judged(paths: Paths, origin: Origin) -> str:
    """Judges the kernel to improve, and returns the run's id."""
    async with Engine(paths, command=REFEREE) as engine:
        access = JudgeAccess(engine, Task(PROBLEM, SETTING), "model:m")
        known = await access.judge_origin(origin)
        await engine.recorded(known.judgement.report.run_id)
        return known.judgement.report.run_id


async def test_file_house_and_run_stand_for_kernels(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("pass")
    mine = find(str(tmp_path / "mine.py"), paths)
    assert (mine.name, mine.kernel, mine.player, mine.judgement) == ("mine.py", Kernel("pass"), "you", None)
    house = find("house", paths)
    assert (house.name, house.player) == ("house.py", "house")
    run_id = await judged(paths, mine)
    again = find(run_id, paths)
    journal = paths.runs / f"{run_id}.jsonl"
    whole = journal.read_bytes()
    # A crash has cut the end of the journal off, but the index has the run.
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert find(run_id, paths).judgement is None
    journal.write_bytes(whole)
    assert (again.name, again.kernel, again.player) == ("mine.py", Kernel("pass"), "you")
    assert again.judgement.report.outcome == "faster"
    assert find(str(tmp_path / "mine.py"), paths).judgement == again.judgement  # the same kernel in the same setting
    with pytest.raises(UsageError, match="is of problem 1 allreduce"):
        find(run_id, paths, "2")
    with pytest.raises(UsageError, match="no kernel file"):
        find(f"./{run_id}", paths)  # a path, which is no run
    append_line(paths.voids, Void(at=1.0, run=run_id, note="cheats", by="anna"))
    assert find(run_id, paths).judgement is None
    append_line(paths.voids, Void(at=2.0, run=run_id, note="", by="anna", undo=True))
    assert find(run_id, paths).judgement == again.judgement
    journal.unlink()
    assert find(str(tmp_path / "mine.py"), paths).judgement is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / run_id).write_text("a file of this name")
    assert find(run_id, paths).kernel == Kernel("a file of this name")


@pytest.mark.parametrize(("word", "why"), [("baseline", "starts from the baseline"), ("no.py", "no kernel file no.py")])
def test_what_cannot_be_improved_is_said(paths: Paths, word: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        find(word, paths)


async def test_newest_timed_result_is_taken(paths: Paths, tmp_path: Path) -> None:
    (path := tmp_path / "mine.py").write_text("pass")
    ids: list[str] = []
    async with Engine(paths, command=REFEREE) as engine:
        for rounds, taken in ((3, 0), (0, 0), (3, 2)):
            asked = RunRequest(problem=PROBLEM, setting=SETTING, kernel_name="mine.py", source="pass", rounds=rounds)
            run = await engine.judge(asked)
            await run.end()
            await engine.recorded(run.run_id)
            ids.append(run.run_id)
            assert find(str(path), paths).judgement.header.run_id == ids[taken]


async def test_prompt_has_kernel_its_verdict_and_its_profile(paths: Paths, tmp_path: Path) -> None:
    origin = Origin("mine.py", Kernel("pass\n# ``` of mine"))
    text = str(build_prompt(PROBLEM, SETTING, CATALOGUE, paths, origin=origin))
    assert "Start from this kernel, `mine.py`" in text
    assert "````python\npass\n# ``` of mine\n````" in text
    assert "It was not judged in this setting yet." in text
    await judged(paths, origin)
    (tmp_path / "mine.py").write_text(origin.kernel.source)
    request = ProfileRequest(setting=SETTING, kernel_name="mine.py", source=origin.kernel.source)
    report = RankProfile(0, [Span("call", "solution", 0.0, 1000.0), Span("wait", "all_reduce", 50.0, 900.0)])
    assert keep_profile(paths, request, Profiled([report], figures([report]))) == ""
    text = str(build_prompt(PROBLEM, SETTING, CATALOGUE, paths, origin=find(str(tmp_path / "mine.py"), paths)))
    assert "Its verdict in this setting is PASS." in text
    assert "- end-to-end: 1.50× [1.40, 1.60]" in text
    assert "rank 0     1,000.0       0.0     900.0" in text
    assert kept_profile(paths, "of no kernel") == ""
    assert "The kernel to improve" not in str(build_prompt(PROBLEM, SETTING, CATALOGUE, paths))


async def test_best_kernel_races_origin_and_shows_improvement(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_SCRIPTED_JAIL", "made")
    origin = Origin("mine.py", Kernel("pass\n# slow"))
    async with Engine(paths, command=REFEREE) as engine:
        task = Task(PROBLEM, SETTING, origin=origin)
        access = JudgeAccess(engine, task, "model:m")
        await access.start()
        assert await access.compare() is None  # there is no attempt yet
        answer = ModelAnswer("```python\npass\n# fast\n```\n", Finish("stop"), Spent())
        judgement = await access.judge(answer.kernel, "m-1.py")
        assert judgement.header.origin == origin.sha256
        access.attempted(Attempt(1, answer, judgement))
        compared = await access.compare()
        await engine.recorded(compared.report.run_id)
    assert compared.report.rival
    header = read_header(paths.runs / f"{compared.report.run_id}.jsonl")
    assert (header.versus, header.origin, header.kernel_name) == ("mine.py", origin.sha256, "m-1.py")

    def improved() -> list[str]:
        board = gather(paths, CATALOGUE)
        return [improved_words(board, card) for card in board.cards if card.player == "model:m"]

    assert improved() == ["1 mine.py"]
    paths.database.unlink()  # the index is rebuilt from the journals
    store = Store(paths.database, paths.runs)
    (comparison,) = store.comparisons()
    assert (comparison.passed, comparison.outcome) == (True, "faster")
    store.record(msgspec.structs.replace(comparison, outcome="even"))
    store.close()
    assert improved() == [""]
