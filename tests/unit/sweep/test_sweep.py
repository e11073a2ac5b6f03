"""A sweep through its driver, its command and its queue, with the scripted referee."""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from model_server import KEY, ModelServer, dripping, status, streamed
from scripted_referee import COMMAND as REFEREE
from waiting import PATIENCE_S, comes_true

from arena.errors import MachineError, PlayerFailed, RefereeFailed, RunRefused, UsageError
from arena.machine.facts import Machine
from arena.models.budget import BudgetPool, Spent
from arena.paths import Paths
from arena.players.make_player import FilePlayer, ModelPlayer
from arena.players.player import KernelAccess, NoAnswer, Player, PlayerKind, PlayerName, PlayerSetup, Submission, Task
from arena.records.header import read_events
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import ModelSettings, Settings
from arena.sweep.journal import SweepJournal, read_lines
from arena.sweep.queue import TRIES, Jobs, Try, Worker, WorkerAccess, WorkerLost, judge_at
from arena.sweep.records import CellResult, SweepPlan, Written, choose_problems, parse_players
from arena.sweep.sweep import Listener, Sweep
from arena.workspace.kernels import Workspace, read_kernel
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Log
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

HERE = Machine("test", "", "2.9", "gloo")
CATALOGUE = load_catalogue()


class Scripted(Player):
    """A player with given answers, by attempt or in turn: a text, None for an answer without a kernel, or an error."""

    def __init__(
        self, *answers: str | Exception | None, name: str = "s", tries: bool = False, in_turn: bool = False
    ) -> None:
        self.name = PlayerName(PlayerKind.AGENT, name)
        self.answers = answers
        self.asked: list[tuple[str, int]] = []
        self.tries = tries
        self.turns = itertools.cycle(answers) if in_turn else None
        self.at_once = self.most_at_once = 0

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        self.asked.append((task.problem.slug, task.attempt))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        answer = next(self.turns) if self.turns else self.answers[(task.attempt - 1) % len(self.answers)]
        if isinstance(answer, Exception):
            raise answer
        if self.tries and answer is not None:
            with pytest.raises(RunRefused):
                await access.build(Kernel("refuse"), "try.py")
            assert (await access.judge(Kernel("wrong"), "try.py")).result.verdict is Verdict.WRONG_RESULT
        kernel = Kernel(answer) if answer is not None else None
        return Submission(kernel, reason="" if answer else "refusal", spent=Spent(10, 5, 0.25))


def plan_for(problems: str, players: Sequence[str] = (), **more: object) -> SweepPlan:
    slugs = [problem.slug for problem in choose_problems(CATALOGUE, [problems])]
    return SweepPlan(players=list(players), problems=slugs, device="cpu", **more)  # type: ignore[arg-type]


async def played(
    paths: Paths, plan: SweepPlan, players: Sequence[Player], listener: Listener | None = None, workers: int = 1,
    ahead: int = 4,
) -> Sweep:  # fmt: skip
    """Plays one session of the sweep "c", and closes the journal after it."""
    journal = SweepJournal(paths.sweeps / "c.jsonl", "c")
    engines = [Engine(paths, command=REFEREE) for _ in range(workers)]
    try:
        for engine in engines:
            await engine.start()
        sweep = Sweep(
            plan,
            [CATALOGUE.find(slug) for slug in plan.problems],
            players,
            [Worker(f"worker {n}", engine, HERE) for n, engine in enumerate(engines)],
            journal,
            Settings(),
            BudgetPool(plan.budget_usd, before=journal.spent),
            ahead=ahead,
            unsafe=True,
            listener=listener or Listener(),
        )
        await sweep.run()
        return sweep
    finally:
        for engine in engines:
            await engine.close()
        journal.close()


def results(paths: Paths) -> list[CellResult]:
    return [line for line in read_lines(paths.sweeps / "c.jsonl") if isinstance(line, CellResult)]


async def test_every_cell_is_judged_once_over_sessions(paths: Paths) -> None:
    player = Scripted("pass", "wrong", None)
    plan = plan_for("1-4", attempts=3)
    first = await played(paths, plan, [player])
    assert first.progress.whole
    assert len(player.asked) == 12
    assert len({(r.cell.slug, r.cell.attempt) for r in results(paths)}) == len(results(paths)) == 12
    verdicts = {r.cell.attempt: r.verdict for r in results(paths)}
    assert verdicts == {1: "PASS", 2: "WRONG_RESULT", 3: "NO_KERNEL"}
    again = await played(paths, plan, [player])
    assert again.progress.whole
    assert again.progress.judged == 0
    assert len(player.asked) == 12
    assert len(results(paths)) == 12
    assert all(0 <= result.seconds < PATIENCE_S for result in results(paths))


async def test_measuring_time_is_plans_or_settings(paths: Paths) -> None:
    for seconds in (None, 4.0):
        await played(paths, plan_for("1", seconds=seconds), [Scripted("budget", name=f"s{seconds}")])
    said = [event.text for path in paths.runs.glob("*.jsonl") for event in read_events(path) if isinstance(event, Log)]
    assert sorted(said) == ["a budget of 2.5 s", "a budget of 4 s"]


async def test_pending_result_counts_in_interrupted_sweep(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    append, at_the_disk = SweepJournal.append, threading.Event()
    judged: list[CellResult] = []

    def slow(journal: SweepJournal, line: Written | CellResult) -> None:
        append(journal, line)
        if isinstance(line, CellResult):
            at_the_disk.set()
            time.sleep(0.3)

    monkeypatch.setattr(SweepJournal, "append", slow)
    heard = Listener(judged=judged.append)
    playing = asyncio.create_task(played(paths, plan_for("1-4"), [Scripted("pass")], heard))
    await asyncio.to_thread(at_the_disk.wait, PATIENCE_S)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert [r.key for r in judged] == [r.key for r in results(paths)]
    assert judged


async def test_two_seats_share_cells_written_ahead(paths: Paths) -> None:
    player = Scripted("pass")
    await played(paths, plan_for("1-12"), [player], workers=2)
    assert 1 < player.most_at_once <= 4
    assert {result.worker for result in results(paths)} == {"worker 0", "worker 1"}
    assert len(results(paths)) == 12


async def test_an_agent_tries_kernels_at_the_seats(paths: Paths) -> None:
    sweep = await played(paths, plan_for("1-3", rounds=0), [Scripted("pass", tries=True)])
    assert sweep.progress.whole
    assert [result.record.speedup for result in results(paths)] == [None] * 3  # the plan's rounds, also of the last one
    assert [result.verdict for result in results(paths)] == ["PASS"] * 3


async def test_other_sizes_are_not_tried_of_the_baseline(paths: Paths) -> None:
    baseline = Scripted("pass", name="b")
    baseline.name = PlayerName(PlayerKind.NAMED, "baseline")
    await played(paths, plan_for("1", other_sizes=True), [baseline, Scripted("pass")])
    tried = {result.cell.player: bool(result.record.tried_other_sizes) for result in results(paths)}
    assert tried == {"baseline": False, "agent:s": True}


async def test_kernel_that_is_only_built_is_not_timed() -> None:
    asked: list[Try] = []
    jobs = SimpleNamespace(try_out=lambda each: asked.append(each) or asyncio.sleep(0))  # type: ignore[func-returns-value]
    access = WorkerAccess(jobs, None, Scripted(), 1, print)  # type: ignore[arg-type]
    for act in (access.judge, access.build):
        await act(Kernel("pass"), "try.py")
    assert [each.rounds for each in asked] == [None, 0]


async def test_broken_provider_is_asked_no_more(paths: Paths) -> None:
    broken, sound = Scripted(PlayerFailed("no answer: 503"), name="broken"), Scripted("pass", name="sound")
    said: list[str] = []
    sweep = await played(paths, plan_for("1-12"), [broken, sound], Listener(said=said.append), ahead=1)
    assert not sweep.progress.whole
    assert sweep.progress.done == 12
    assert sweep.progress.unanswered == 12
    assert len(broken.asked) == 3
    assert ["503" in text and "asked no more" in text for text in said] == [False, False, True]
    mended = Scripted("pass", name="broken")
    sweep = await played(paths, plan_for("1-12"), [mended, sound])
    assert sweep.progress.whole
    assert len(results(paths)) == 24


async def test_only_failures_in_a_row_end_a_player(paths: Paths) -> None:
    player = Scripted(PlayerFailed("no answer: 503"), "pass", in_turn=True)  # whoever is asked at the same time
    await played(paths, plan_for("1-6", attempts=2), [player])
    assert len(player.asked) == 12


async def test_kernels_that_fail_harness_retire_no_worker(paths: Paths) -> None:
    sweep = await played(paths, plan_for("1-2", attempts=3), [Scripted("die", name="a"), Scripted("pass")])
    assert sweep.progress.stopped == ""
    assert Counter(result.verdict for result in results(paths)) == {"HARNESS_ERROR": 6, "PASS": 6}


async def test_worker_without_a_referee_is_lost() -> None:
    judge = SimpleNamespace(judge=AsyncMock(side_effect=RefereeFailed("no room", "free some")))
    with pytest.raises(WorkerLost, match="w judges no more: no room"):
        await judge_at(Worker("w", judge, HERE), None)
    assert judge.judge.await_count == TRIES


@pytest.mark.slow
async def test_paid_kernel_is_not_asked_again_after_failure(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_SCRIPTED_VERDICT", "HARNESS_ERROR")
    player, said = Scripted("pass"), list[str]()
    sweep = await played(paths, plan_for("1-12"), [player], Listener(said=said.append), workers=2)
    why, _, last = sweep.progress.stopped.partition(", the last one: ")
    gone, stays = sorted(("worker 0", "worker 1"), key=why.endswith)
    assert why == f"3 harness errors in a row at {stays}"
    assert said == [f"3 harness errors in a row at {gone}, the last one: {last}; it judges no more"]
    assert Counter(result.worker for result in results(paths)) == {"worker 0": 3, "worker 1": 3}
    assert last == results(paths)[-1].detail != ""
    assert not sweep.progress.whole
    asked = len(player.asked)
    written = [line for line in read_lines(paths.sweeps / "c.jsonl") if isinstance(line, Written)]
    assert len(written) == asked
    assert sweep.progress.judged == 6
    again = await played(paths, plan_for("1-12"), [player])
    assert again.progress.done == 0
    assert len({(slug, attempt) for slug, attempt in player.asked}) == len(player.asked)


async def test_budget_holds_over_sessions(paths: Paths) -> None:
    """The journal has $0.25 for each answer, and a second session counts them."""
    player = Scripted("pass")
    await played(paths, plan_for("1-4"), [player])
    sweep = await played(paths, plan_for("1-8", budget_usd=1.0), [player])
    assert len(player.asked) == 4
    assert sweep.progress.stopped == "the budget of $1 is spent"
    assert (sweep.progress.done, sweep.progress.total) == (4, 8)


async def test_money_without_answer_counts_in_later_sessions(paths: Paths) -> None:
    failing = Scripted(NoAnswer(PlayerFailed("cut off"), Spent(100, 50, 0.75)))
    await played(paths, plan_for("1"), [failing])
    assert results(paths) == []
    sweep = await played(paths, plan_for("1-2", budget_usd=0.5), [Scripted("pass")])
    assert sweep.progress.stopped == "the budget of $0.5 is spent"
    assert sweep.pool.spent.usd == 0.75


@pytest.fixture
def agent(model_server: ModelServer, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> ModelPlayer:
    """A model at the server, with feedback."""
    monkeypatch.setenv("TEST_KEY", KEY)
    model = ModelSettings(
        provider="openai_chat", model="m", base_url=model_server.url, key_env="TEST_KEY", price_in=1.0, price_out=1.0
    )
    setup = PlayerSetup(Settings(models={"m": model}), CATALOGUE, paths, BudgetPool(1.0))
    return ModelPlayer(PlayerName(PlayerKind.AGENT, "m"), setup)


PASSES = streamed("```python\npass\n\ndef solution(): pass\n```\n", usage=(100_000, 100_000))


async def test_kernel_judged_before_its_provider_failed_is_result(
    paths: Paths, model_server: ModelServer, agent: ModelPlayer
) -> None:
    model_server.replies = [PASSES, status("402 Payment Required")]
    said: list[str] = []
    sweep = await played(paths, plan_for("1", steps=3), [agent], Listener(said=said.append))
    assert sweep.progress.whole
    (result,) = results(paths)
    assert (result.verdict, result.spent) == ("PASS", Spent(100_000, 100_000, 0.2))
    assert any("402" in text for text in said)
    await played(paths, plan_for("1", steps=3), [agent])
    assert len(model_server.seen) == 2


async def test_money_of_interrupted_attempt_counts(paths: Paths, model_server: ModelServer, agent: ModelPlayer) -> None:
    model_server.replies = [PASSES, dripping(b"", b": still here\n\n")]
    playing = asyncio.create_task(played(paths, plan_for("1", steps=3), [agent]))
    await comes_true(lambda: len(model_server.seen) > 1)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    journal = SweepJournal(paths.sweeps / "c.jsonl", "c")
    assert 0.2 < journal.spent.usd < 0.3
    journal.close()


async def test_pending_answers_are_kept_in_interrupted_sweep(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    append = SweepJournal.append

    def slow(journal: SweepJournal, line: Written | CellResult) -> None:
        time.sleep(0.1)
        append(journal, line)

    monkeypatch.setattr(SweepJournal, "append", slow)
    player = Scripted("pass")
    playing = asyncio.create_task(played(paths, plan_for("1-4"), [player]))
    await comes_true(lambda: len(player.asked) > 3 and not player.at_once)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    written = [line for line in read_lines(paths.sweeps / "c.jsonl") if isinstance(line, Written)]
    assert len(written) == len(player.asked) == 4


async def test_a_fixed_kernel_that_changed_is_judged_again(paths: Paths, tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("pass")
    player = FilePlayer(PlayerName(PlayerKind.FILE, str(kernel)), kernel)
    await played(paths, plan_for("1-2", attempts=5), [player])
    assert len(results(paths)) == 2
    kernel.write_text("wrong")
    await played(paths, plan_for("1-2", attempts=5), [player])
    assert [r.verdict for r in results(paths)] == ["PASS", "PASS", "WRONG_RESULT", "WRONG_RESULT"]


async def test_kernels_of_several_files(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "allreduce"
    folder.mkdir()
    (folder / "kernel.py").write_text("pass")
    (folder / "helper.py").write_text("one")
    player = FilePlayer(PlayerName(PlayerKind.FILE, str(tmp_path)), tmp_path)
    await played(paths, plan_for("1"), [player])
    kernel = read_kernel(folder)
    assert [result.sha256 for result in results(paths)] == [kernel.sha256]
    assert Workspace(paths.workspace).kernel(kernel.sha256) == kernel.kernel
    assert (await played(paths, plan_for("1"), [player])).progress.judged == 0
    (folder / "helper.py").write_text("two")
    assert (await played(paths, plan_for("1"), [player])).progress.judged == 1
    one = FilePlayer(PlayerName(PlayerKind.FILE, str(folder)), folder)  # one kernel for every problem
    assert (await played(paths, plan_for("1-2"), [one])).progress.judged == 2


async def test_unjudged_kernel_is_judged_whole_after_resume(paths: Paths) -> None:
    files = {"helper.py": b"\xffone"}

    class Folder(Scripted):
        async def play(self, task: Task, access: KernelAccess) -> Submission:
            assert (await access.judge(Kernel("wrong", files), "try.py")).header.files == files
            return replace(await super().play(task, access), kernel=Kernel("pass", files))

    await played(paths, plan_for("1"), [Folder("pass")])
    journal = paths.sweeps / "c.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"type":"result"')))
    player = Folder("pass")
    await played(paths, plan_for("1"), [player])
    assert player.asked == []
    assert [result.sha256 for result in results(paths)] == [Kernel("pass", files).sha256]


async def test_cell_of_too_busy_machine_is_tried_again(paths: Paths) -> None:
    await played(paths, plan_for("1"), [Scripted("busy")])
    assert [(result.verdict, result.tries) for result in results(paths)] == [("PASS", 2)]


async def test_refused_setting_is_result_and_not_retried(paths: Paths) -> None:
    player = Scripted("refuse")
    await played(paths, plan_for("1"), [player])
    assert [(r.verdict, r.detail) for r in results(paths)] == [("REFUSED", "sizes do not fit")]
    assert (await played(paths, plan_for("1"), [player])).progress.judged == 0


async def test_players_without_kernels_are_omitted(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "allreduce.py").write_text("pass")
    (tmp_path / "03_broadcast").mkdir()
    (tmp_path / "03_broadcast" / "kernel.py").write_text("pass")
    left: list[str] = []
    listener = Listener(left_out=lambda problem, player, why: left.append(problem.slug))
    player = FilePlayer(PlayerName(PlayerKind.FILE, str(tmp_path)), tmp_path)
    sweep = await played(paths, plan_for("1-4"), [player], listener)
    assert left == ["allgather", "reduce"]
    assert sweep.progress.whole
    assert {result.cell.slug for result in results(paths)} == {"allreduce", "broadcast"}


async def test_unreadable_kernel_is_missing(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "allreduce.py").symlink_to("nowhere.py")
    (tmp_path / "2.py").mkdir()
    os.mkfifo(tmp_path / "3.py")
    (tmp_path / "4.py").symlink_to("4.py")
    (tmp_path / "reduce.py").write_text("pass")  # of two files for problem 3, the readable one is used
    (tmp_path / "5.py").symlink_to("5.py")
    said: list[str] = []
    player = FilePlayer(PlayerName(PlayerKind.FILE, str(tmp_path)), tmp_path)
    sweep = await played(paths, plan_for("1-5"), [player], Listener(said=said.append))
    assert [result.cell.slug for result in results(paths)] == ["reduce"]
    assert not sweep.progress.whole
    assert sweep.progress.unanswered == 4
    for name, why in (
        ("allreduce.py", "is a link to nothing"),
        ("2.py", "is no file with text"),
        ("3.py", "is no file with text"),
        ("5.py", "cannot be read: Too many levels of symbolic links"),
    ):
        assert any(f"{tmp_path}/{name} {why}; replace it" in line for line in said), said


async def test_journal_has_one_writer_and_drops_torn_line(paths: Paths) -> None:
    await played(paths, plan_for("1-2"), [Scripted("pass")])
    path = paths.sweeps / "c.jsonl"
    journal = SweepJournal(path, "c")
    with pytest.raises(MachineError, match="another process is at work on the sweep"):
        SweepJournal(path, "c")
    journal.close()
    path.write_bytes(path.read_bytes()[:-40])
    sweep = await played(paths, plan_for("1-2"), [Scripted("pass")])
    assert sweep.progress.judged == 1
    assert len(results(paths)) == 2


def test_problem_sets_and_players() -> None:
    def ids(*texts: str) -> list[int]:
        return [problem.id for problem in choose_problems(CATALOGUE, texts)]

    assert ids("1-3,13,2") == [1, 2, 3, 13]
    assert ids("category:collective") == list(range(1, 9))
    assert len(ids("all")) == 87
    assert set(ids("class:A")) < set(ids("all"))
    assert ids("allreduce", "2") == [1, 2]
    for wrong, said in {"category:none": "category", "class:X": "class", "80-99": "'99'", ",": "chosen"}.items():
        with pytest.raises(UsageError) as refused:
            ids(wrong)
        assert said in refused.value.message
    assert parse_players("baseline, house,baseline") == ["baseline", "house"]
    with pytest.raises(UsageError):
        parse_players("baseline,nobody")


SCRIPT = """
import asyncio, sys
sys.path[:0] = {folders!r}
from test_sweep import HERE, Scripted, plan_for, played
from arena.paths import find_paths

class Stops(Scripted):
    async def play(self, task, access):
        if len(self.asked) == int(sys.argv[1]):
            await asyncio.sleep(600)
        return await super().play(task, access)

asyncio.run(played(find_paths(), plan_for("1-30", attempts=2), [Stops("pass", "wrong")]))
"""
"""Asks its player for 60 answers. Its argument is the number of answers after which the player hangs."""


def killed_in_the_middle(command: Sequence[str], path: Path) -> None:
    """Starts the command, and kills it when two more results are in its journal."""

    def count() -> int:
        return path.read_bytes().count(b'"type":"result"') if path.exists() else 0

    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until, wanted = time.monotonic() + PATIENCE_S, count() + 2
    while count() < wanted and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    ended, written = process.poll(), count()
    process.kill()
    process.wait()
    assert ended is None, "it ended before it was killed"
    assert written >= wanted, "it wrote no two results in time"


@pytest.mark.slow
def test_two_kills_lose_and_repeat_nothing(paths: Paths) -> None:
    command = [sys.executable, "-c", SCRIPT.format(folders=[str(folder) for folder in Path(__file__).parents[:3]])]
    for _ in range(2):
        killed_in_the_middle([*command, "12"], paths.sweeps / "c.jsonl")
    before = {result.key for result in results(paths)}
    subprocess.run([*command, "60"], check=True, timeout=PATIENCE_S)
    keys = [result.key for result in results(paths)]
    assert len(keys) == len(set(keys)) == 60
    assert before < set(keys)
    written = [line for line in read_lines(paths.sweeps / "c.jsonl") if isinstance(line, Written)]
    assert len({line.cell.digest for line in written}) == len(written) == 60


@pytest.fixture
def a_task() -> Task:
    problem = load_catalogue().find("1")
    return Task(problem, choose_setting(problem, Choice(world=2, device="cpu"), Settings()))


def a_try(task: Task) -> Try:
    return Try(task, "agent:a", Kernel("pass"), "try.py", None, asyncio.get_running_loop().create_future())


async def test_worker_waits_though_writer_of_try_is_gone(a_task: Task) -> None:
    jobs = Jobs(iter(()), 4)
    gone, next_one = a_try(a_task), a_try(a_task)
    waiting = asyncio.create_task(jobs.try_out(gone))
    await asyncio.sleep(0)
    waiting.cancel()  # the agent's time is up: its call and the future are cancelled
    await asyncio.wait([waiting])
    assert gone.judgement.done()
    worker = asyncio.create_task(jobs.take(""))
    writer = asyncio.create_task(jobs.try_out(next_one))
    assert await asyncio.wait_for(worker, PATIENCE_S) is next_one
    writer.cancel()


async def test_a_worker_ends_when_nobody_writes_any_more(a_task: Task) -> None:
    jobs = Jobs(iter(()), 4)
    worker = asyncio.create_task(jobs.take(""))
    await asyncio.sleep(0)
    await jobs.no_more_writing()
    assert await asyncio.wait_for(worker, PATIENCE_S) is None
