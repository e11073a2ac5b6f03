"""A match from its first kernel to its outcome, with the scripted referee."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from waiting import comes_true

from arena.duel import events
from arena.duel.card import abandoned_words, shortened
from arena.duel.journal import abandoned_duels, read_duel, read_duels
from arena.duel.match import Match, MatchAccess, duel_players, new_header
from arena.duel.state import DuelState
from arena.errors import FolderUnwritable, MachineError, PlayerFailed, UsageError
from arena.paths import Paths
from arena.players import make_player
from arena.players.player import KernelAccess, Player, PlayerKind, PlayerName, PlayerSetup, Submission, Task
from arena.records.header import read_header
from arena.records.index import Store
from arena.records.json_lines import append_line
from arena.records.run_record import view
from arena.records.voids import Void, read_voids
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import GRAPH, variant_source
from problems.catalogue import load_catalogue
from problems.specification import Problem, load_problem
from sandbox.protocol.events import Interval, Judged, Result, Setting, Speedup
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue()
PROBLEM = CATALOGUE.find("13")
SETTING = choose_setting(PROBLEM, Choice(world=2, device="cpu"), Settings())
MakeMatch = Callable[..., Match]


class Text(Player):
    """A player that submits one text."""

    def __init__(self, source: str, name: PlayerName) -> None:
        self.source, self.name = source, name

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        return Submission(Kernel(self.source))


def fixed(source: str, player: str, kind: PlayerKind = PlayerKind.NAMED) -> Text:
    return Text(source, PlayerName(kind, player))


def user(player: str, kernel: Path) -> make_player.FilePlayer:
    return make_player.FilePlayer(PlayerName(PlayerKind.USER, player), kernel)


def player_for(
    word: str, paths: Paths, owner: str = "you", setting: Setting = SETTING, problem: Problem = PROBLEM
) -> Player:
    words, owners = (word, "baseline"), (owner, "guest")
    return duel_players(words, owners, Task(problem, setting), PlayerSetup(Settings(), CATALOGUE, paths))[0]


class Fails(Player):
    """A player that fails because its provider does not answer."""

    name = PlayerName(PlayerKind.USER, "gone")

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        raise PlayerFailed("no answer from the provider", "try later")


@pytest.fixture
def make_match(engine: Engine, paths: Paths) -> MakeMatch:
    def make(left: Player, right: Player, minutes: float | None = None) -> Match:
        header = new_header(PROBLEM, SETTING, (left, right), minutes)
        return Match(engine, paths, PROBLEM, header, (left, right), live_s=60.0)

    return make


def told(match: Match, paths: Paths) -> list[events.AnyDuelEvent]:
    return list(read_duel(paths.duels / f"{match.state.header.duel_id}.jsonl"))


async def test_both_are_judged_and_the_final_decides(make_match: MakeMatch, engine: Engine, paths: Paths) -> None:
    match = make_match(fixed("pass", "a"), fixed("pass", "b"))
    asked, judge = [], engine.judge
    engine.judge = lambda request: asked.append(request) or judge(request)
    match.listeners.append(
        lambda event: match.give_up("left") if isinstance(event, events.FinalBegan) else None
    )  # too late
    ended = await match.play()
    assert (ended.winner, ended.reason, ended.left.stopped) == ("left", "faster in the final", "")
    seen = told(match, paths)
    assert [event.at for event in seen] == sorted(event.at for event in seen)
    assert seen[-1] == ended
    for name in events.SIDES:
        course = [events.Submitted, events.KernelJudged, events.Left]
        kinds = [type(event) for event in seen if getattr(event, "side", None) == name]
        assert [kind for kind in kinds if kind in course] == course
    assert [event.verdict for event in seen if isinstance(event, events.KernelJudged)] == [Verdict.PASS] * 2
    assert [record.ended for record in read_duels(paths.duels)[0]] == [ended]
    assert [request.live_s for request in asked] == [60.0, 60.0, 0.0]  # the final ends with its rounds


@pytest.fixture
async def measured_on(make_match: MakeMatch, tmp_path: Path) -> AsyncIterator[tuple[Match, Path]]:
    """A duel whose left kernel has its verdict and goes on measuring; the path of the kernel."""
    kernel = tmp_path / "kernel.py"
    kernel.write_text("measures")
    match = make_match(user("you", kernel), Fails(), minutes=5.0)
    playing = asyncio.create_task(match.play())
    await comes_true(lambda: match.measuring_on and match.state.left.attempts[0].phase == events.MEASURING_ON)
    yield match, kernel
    match.give_up("left")
    await playing


def measured(match: Match, half_width: float) -> Judged:
    """The next result of the run that goes on measuring."""
    run, _ = match._measuring or pytest.fail("nothing is being measured")
    assert run.judged is not None
    speedup = Speedup(call=Interval(1.5, 1.5 - half_width, 1.5 + half_width), device=None)
    result = msgspec.structs.replace(run.judged, speedup=speedup)
    return view(Judged, run.header, result=result)


async def test_interval_narrows_after_verdict(measured_on: tuple[Match, Path], engine: Engine, paths: Paths) -> None:
    match, _ = measured_on
    attempt = match.state.left.attempts[0]
    at = attempt.judged.at
    engine._on_event(measured(match, 0.02))
    await comes_true(lambda: attempt.speedup == Interval(1.5, 1.48, 1.52))
    assert (attempt.judged.at, attempt.judged.outcome) == (at, "faster")
    assert attempt.phase == events.MEASURING_ON
    await match.end_measuring()
    assert (match.measuring_on, attempt.phase, attempt.speedup) == (False, "", Interval(1.5, 1.48, 1.52))
    replayed = DuelState(match.state.header)
    for event in told(match, paths):
        replayed.apply(event)
    assert replayed == match.state


async def test_next_save_ends_measuring_on(measured_on: tuple[Match, Path]) -> None:
    match, kernel = measured_on
    kernel.write_text("pass")
    await comes_true(lambda: [each.passed for each in match.state.left.attempts] == [True, True])
    assert not match.measuring_on
    assert match.state.left.attempts[0].phase == ""


async def test_kernel_that_waits_for_another_run_says_so(make_match: MakeMatch, paths: Paths) -> None:
    match = make_match(fixed("waits", "a"), fixed("wrong", "b"))
    await match.play()
    phases = [
        event.phase for event in told(match, paths) if isinstance(event, events.KernelJudging) and event.side == "left"
    ]
    assert phases[:2] == ["check", f"{events.WAITING} (no details known)"]


async def test_kernels_of_several_files_play_to_the_end(make_match: MakeMatch, paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "two_shot"
    folder.mkdir()
    (folder / "kernel.py").write_text("pass")
    (folder / "helper.py").write_text("one")
    match = make_match(user("a", folder), player_for("baseline", paths))
    await match.play()
    assert match.state.right.attempts[0].kernel.source == PROBLEM.baseline_source  # which the player leaves out
    submitted = next(
        event for event in told(match, paths) if isinstance(event, events.Submitted) and event.side == "left"
    )
    assert (submitted.sha256, submitted.files) == (read_kernel(folder).sha256, {"helper.py": b"one"})
    left = match.state.left.attempts[0]
    assert left.kernel.files == submitted.files
    assert read_header(paths.runs / f"{left.judged.run_id}.jsonl").kernel_path == str(folder)


async def test_runs_are_indexed_and_the_final_is_not(make_match: MakeMatch, engine: Engine, paths: Paths) -> None:
    match = make_match(fixed("pass", "a"), fixed("pass", "b"))
    await match.play()
    await engine.close()
    store = Store(paths.database, paths.runs)
    assert [len(store.history(PROBLEM.id, player)) for player in ("a", "b")] == [1, 1]
    assert len(list(paths.runs.glob("*.jsonl"))) == 3
    store.close()
    paths.database.unlink()
    assert [Store(paths.database, paths.runs).players()] == [["a", "b"]]


async def test_mark_on_run_of_final_voids_duel(make_match: MakeMatch, paths: Paths) -> None:
    match = make_match(fixed("pass", "a"), fixed("pass", "b"))
    await match.play()
    (final,) = [event.run_id for event in told(match, paths) if isinstance(event, events.FinalBegan)]
    assert (paths.runs / f"{final}.jsonl").is_file()
    mark = Void(at=1.0, note="another program used the cores", by="anna", run=final)
    append_line(paths.voids, mark)
    assert [record.voided for record in read_duels(paths.duels, read_voids(paths.voids))[0]] == [mark]


async def test_provider_that_fails_loses_and_duel_goes_on(make_match: MakeMatch, engine: Engine) -> None:
    match = make_match(Fails(), fixed("pass", "b"))
    ended = await match.play()
    assert "spare" in engine.worlds  # started with the duel, before a submission
    assert ended.winner == "right"
    assert shortened(match.state.left.left) == match.state.left.left == "failed: no answer from the provider"
    match.state.header = msgspec.structs.replace(match.state.header, rounds=3)
    assert MatchAccess(match, "left").steps == 3


async def test_every_save_is_submitted_until_time_ends(make_match: MakeMatch, tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("wrong")
    match = make_match(user("you", kernel), fixed("wrong", "b"), minutes=5.0)
    heard: list[events.AnyDuelEvent] = []
    match.listeners.append(heard.append)

    def judged(number: int) -> bool:
        attempts = match.state.left.attempts
        return len(attempts) == number and attempts[-1].judged is not None

    playing = asyncio.create_task(match.play())
    await comes_true(lambda: judged(1))
    kernel.write_bytes(b"caf\xe9")
    await comes_true(lambda: any("not submitted: " in event.text for event in heard if isinstance(event, events.Said)))
    kernel.write_text("pass")
    await comes_true(lambda: judged(2))
    match._started -= 300.0  # the time is over
    ended = await playing
    assert match.state.left.left == "time"
    assert [attempt.kernel.source for attempt in match.state.left.attempts] == ["wrong", "pass"]
    assert ended.winner == "left"


async def test_save_before_the_judge_is_ready_is_submitted(tmp_path: Path) -> None:
    kernel, access, task = tmp_path / "kernel.py", AsyncMock(clocked=True), Task(PROBLEM, SETTING)
    kernel.write_text("wrong")
    player = user("you", kernel)
    player.check(task)
    player.submits_first = False
    kernel.write_text("pass")
    playing = asyncio.create_task(player.play(task, access))
    await comes_true(lambda: [each.args[0].source for each in access.judge.await_args_list] == ["pass"])
    playing.cancel()


@pytest.mark.parametrize("reason", ["agreed", "time"])
async def test_save_during_judgement_is_judged_before_final(make_match: MakeMatch, tmp_path: Path, reason: str) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("wrong")
    match = make_match(user("you", kernel), fixed("pass", "b"), minutes=5.0)
    playing = asyncio.create_task(match.play())
    await comes_true(lambda: match.state.left.last is not None)
    match.pause()  # the judgement of the first kernel, or its next event, is held
    kernel.write_text("pass")
    if reason == "agreed":
        match.agree("left")
    else:
        match._leave("left", "time")
    await comes_true(lambda: match.state.left.left == reason)
    match.resume()
    ended = await playing
    assert [attempt.kernel.source for attempt in match.state.left.attempts] == ["wrong", "pass"]
    assert (ended.reason, ended.left.attempt) == ("faster in the final", 2)


async def test_submitted_or_withdrawn_text_is_not_submitted_again(make_match: MakeMatch, tmp_path: Path) -> None:
    yours, guests = tmp_path / "yours.py", tmp_path / "guests.py"
    yours.write_text("pass")
    guests.write_text("pass")
    match = make_match(user("you", yours), user("guest", guests), minutes=5.0)
    playing = asyncio.create_task(match.play())
    await comes_true(lambda: all(match.state.side(name).last is not None for name in events.SIDES))
    match.pause()
    guests.write_text("pass\n# not with giving up")
    match.agree("left")
    match.give_up("right")
    match.resume()
    ended = await playing
    assert (ended.winner, ended.reason) == ("left", "the other player gave up")
    assert [len(match.state.side(name).attempts) for name in events.SIDES] == [1, 1]


async def test_while_paused_nothing_is_judged_and_clock_stands(
    make_match: MakeMatch, tmp_path: Path, paths: Paths
) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("pass")
    match = make_match(user("you", kernel), fixed("pass", "b"), minutes=5.0)
    playing = asyncio.create_task(match.play())
    await comes_true(lambda: all(match.state.side(name).last is not None for name in events.SIDES))
    await comes_true(lambda: all(match.state.side(name).last.judged for name in events.SIDES))  # type: ignore[union-attr]
    match.pause()
    left = match.state.remaining(match.now)
    kernel.write_text("pass ")
    await comes_true(lambda: len(match.state.left.attempts) == 2)
    await asyncio.sleep(0.3)
    assert match.state.left.attempts[1].judged is None
    assert match.state.remaining(match.now) == pytest.approx(left, abs=0.01)
    kernel.write_text("pass")
    match.resume()
    match.resume()
    match.give_up("left")
    assert (await playing).winner == "right"
    assert not any("_run_clock" in repr(task) for task in asyncio.all_tasks())
    seen = told(match, paths)
    course = [events.Paused, events.Resumed]
    assert [type(event) for event in seen if type(event) in course] == course
    assert [event.reason for event in seen if isinstance(event, events.Left) and event.side == "left"] == ["gave up"]


async def test_pause_during_last_run_holds_final_back(make_match: MakeMatch) -> None:
    match = make_match(fixed("pass", "a"), fixed("pass", "b"), minutes=5.0)
    match.listeners.append(lambda event: match.pause() if _runs_last(match, event) else None)
    playing = asyncio.create_task(match.play())
    await comes_true(lambda: match.state.left.left == match.state.right.left == "done")
    await asyncio.sleep(0.3)
    assert (match.state.stage, match.state.final) == ("paused", None)
    match.resume()
    assert (await playing).reason == "faster in the final"


def _runs_last(match: Match, event: events.AnyDuelEvent) -> bool:
    """Whether this event is the correctness check of the second of two kernels."""
    runs = isinstance(event, events.KernelJudging) and event.phase == "check"
    return runs and any(match.state.side(name).best is not None for name in events.SIDES)


async def test_agreed_side_keeps_kernels_after_rival_gives_up(make_match: MakeMatch, tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("pass")
    players = [user(player, kernel) for player in ("you", "guest")]
    match = make_match(*players, minutes=5.0)
    playing = asyncio.create_task(match.play())
    await comes_true(lambda: match.state.left.best is not None and match.state.right.best is not None)
    match.agree("left")
    await comes_true(lambda: match.state.left.left == "agreed")
    assert match.state.left.best is not None
    match.give_up("left")
    assert match.state.left.best is None
    assert (await playing).winner == "right"  # at once: minutes are left, and its player has not ended


async def test_a_model_does_not_play_without_a_jail(make_match: MakeMatch) -> None:
    model = fixed("pass", "m", PlayerKind.MODEL)
    with pytest.raises(MachineError):
        await make_match(model, fixed("pass", "b")).play()


async def test_duel_that_is_left_in_final_is_listed(
    make_match: MakeMatch, paths: Paths, pkb_arena: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    match = make_match(fixed("pass", "a"), fixed("pass", "b"))

    async def endless() -> Result:
        match.tell(events.FinalBegan(left=1, right=1, run_id="r"))
        return await asyncio.Future[Result]()

    monkeypatch.setattr(match, "_final", endless)
    playing = asyncio.create_task(match.play())
    await comes_true(lambda: match.state.stage == "final")
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert read_duels(paths.duels)[0] == []
    (left,) = abandoned_duels(paths.duels)
    assert abandoned_words(left.state) == "abandoned in the final (it was cancelled): nothing was timed"
    assert "abandoned in the final" in pkb_arena("duels").stdout


async def test_a_duel_that_the_harness_broke_is_listed(make_match: MakeMatch, paths: Paths) -> None:
    with pytest.raises(MachineError):
        await make_match(fixed("die", "a"), fixed("pass", "b")).play()
    (broken,) = abandoned_duels(paths.duels)
    assert "a without a correct kernel, b ▲ 1.50×" in abandoned_words(broken.state)


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [("breaks", MachineError, "the final could not be run"), ("refuse", UsageError, "sizes do not fit")],
)
async def test_what_decides_nothing_is_abandoned(make_match: MakeMatch, paths: Paths, kernel, error, words) -> None:
    match = make_match(fixed(kernel, "a"), fixed("pass", "b"))
    with pytest.raises(error, match=words):
        await match.play()
    assert isinstance(told(match, paths)[-1], events.Abandoned)


async def test_a_duel_whose_arena_was_killed_is_listed(make_match: MakeMatch, paths: Paths) -> None:
    await make_match(fixed("pass", "a"), fixed("pass", "b")).play()
    (path,) = paths.duels.glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert abandoned_duels(paths.duels) == []  # it may still be played
    for written in (0, 1 << 33):  # the clock may have been set back since
        os.utime(path, (written, written))
        (killed,) = abandoned_duels(paths.duels)
        assert "its journal ends early" in abandoned_words(killed.state)


async def test_full_disk_is_named_and_leaves_no_journal(engine: Engine, paths: Paths) -> None:
    players = (fixed("pass", "a"), fixed("pass", "b"))
    header = new_header(PROBLEM, SETTING, players, None)
    paths.duels.mkdir(parents=True)
    (paths.duels / f"{header.duel_id}.jsonl").symlink_to("/dev/full")
    with pytest.raises(FolderUnwritable, match=r"cannot write .*: No space left on device") as refused:
        Match(engine, paths, PROBLEM, header, players)
    assert refused.value.advice == "free some space"
    assert list(paths.duels.iterdir()) == []


async def test_a_baseline_variant_plays_on_gpus_alone(paths: Paths) -> None:
    on_gpus = msgspec.structs.replace(SETTING, device="cuda")
    player = player_for("baseline-graph", paths, setting=on_gpus)
    assert new_header(PROBLEM, on_gpus, (player, player)).left == events.DuelPlayer("baseline", "baseline-graph")
    found = await player.play(Task(PROBLEM, on_gpus), KernelAccess())
    assert (found.file_name, found.kernel) == ("baseline-graph.py", Kernel(variant_source(PROBLEM, GRAPH, "cuda")))
    with pytest.raises(UsageError, match="baseline-graph needs GPU ranks"):
        player_for("baseline-graph", paths)
    with pytest.raises(UsageError, match="no baseline-windows for 13"):
        player_for("baseline-windows", paths, setting=on_gpus)


@pytest.mark.parametrize("player", ["baseline-graph", "house", "model:m", "", " you", "x" * 61])
def test_file_cannot_take_name_of_another_kernel(player: str, paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def solution(): pass\n")
    with pytest.raises(UsageError, match="player"):
        player_for(str(tmp_path / "mine.py"), paths, player)


def test_the_house_says_what_it_has(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "collective" / "allreduce"
    shutil.copytree(CATALOGUE.find("1").folder, folder)
    (folder / "house.py").unlink()
    problem = load_problem(folder)
    with pytest.raises(UsageError, match="no house kernel for") as caught:
        player_for("house", paths, problem=problem)
    assert "13" in caught.value.advice
