"""Agents: from an answer to a verdict to a better answer; limits; and the trace, which is complete."""

import asyncio
import itertools
import time
from functools import partial

import pytest
from model_server import KEY, ModelServer, dripping, events, status, streamed
from scripted_agents import Bench, MakeAgent
from scripted_referee import COMMAND

from arena.errors import MachineError, PlayerFailed, UsageError
from arena.models.budget import Spent
from arena.models.conversation import CallPart, Finish, Text, Usage
from arena.paths import Paths
from arena.players import trace
from arena.players.judge_access import JudgeAccess, keep_revisions, save_best
from arena.players.player import Task
from arena.players.writing_state import WritingState
from arena.records.json_lines import Journal
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.workspace.kernels import Workspace, read_kernel
from problems.catalogue import load_catalogue
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict


def kernel(returns: str) -> str:
    return f"```python\ndef solution(x):\n    return {returns}\n```\n"


@pytest.fixture
def made(made: MakeAgent) -> MakeAgent:
    return partial(made, "anthropic", tools=False)


async def test_it_reads_the_verdict_and_does_better(model_server: ModelServer, made: MakeAgent) -> None:
    heard: list[trace.AnyTraceEvent] = []
    model_server.replies = [streamed(kernel(word)) for word in ("oops", "0.8", "1.5")]
    agent = made(heard=heard, steps=3)
    best = await agent.play()
    assert (best.step, best.speedup, agent.reason) == (3, 1.5, "steps")
    first, second, third = (seen.prompt for seen in model_server.seen)
    assert "WRONG_RESULT" not in first
    assert "oops is wrong" in second
    assert "return oops" in second
    assert "Make it faster" in third
    assert not any("tools" in seen.body for seen in model_server.seen)  # they are switched off
    assert [event.gain for event in heard if isinstance(event, trace.Judged)] == [True, True, True]


async def test_an_answer_may_have_several_files(
    model_server: ModelServer, made: MakeAgent, bench: Bench, paths: Paths
) -> None:
    main = "from .part import one\n\ndef solution(x):\n    return {}\n"
    answer = "```python kernel.py\n" + main + "```\n\n```cuda ops/sum.cu\n// sum\n```\n"
    files = {"ops/sum.cu": b"// sum\n"}
    heard: list[trace.AnyTraceEvent] = []
    model_server.replies = [streamed(answer.format(word)) for word in ("oops", "1.5")]
    agent = made(heard=heard, steps=2)
    best = await agent.play()
    assert best is not None
    assert bench.files == [files, files]
    assert [event.files for event in heard if isinstance(event, trace.Answered)] == [files, files]
    assert "```cuda ops/sum.cu\\n// sum\\n```" in model_server.seen[1].prompt  # its last answer, in the next prompt
    workspace = Workspace(paths.workspace)
    assert keep_revisions(workspace, agent.attempts) == best
    kernel = Kernel(main.format("1.5"), files)
    assert workspace.kernel(kernel.sha256) == kernel
    problem = load_catalogue().find("1")
    assert read_kernel(save_best(workspace, problem, "model:m", best)).kernel == kernel


async def test_trace_has_everything_and_is_what_listeners_heard(model_server: ModelServer, made: MakeAgent) -> None:
    heard: list[trace.AnyTraceEvent] = []
    model_server.replies = [status("500 Oops"), streamed(kernel("1.1")), streamed("sorry, no")]
    agent = made(heard=heard, steps=2)
    await agent.play()
    path = agent.recorder.path
    told = list(trace.read_trace(path))
    assert told == heard
    assert trace.read_trace_header(path).player == "model:m"
    kinds = [type(event) for event in told]
    assert (kinds[0], kinds[-1]) == (trace.Asked, trace.Ended)
    assert {trace.Retried, trace.Wrote, trace.Answered, trace.Judged} <= set(kinds)
    assert "".join(event.text for event in told if isinstance(event, trace.Wrote) and event.step == 1) == kernel("1.1")
    (first, second) = [event for event in told if isinstance(event, trace.Answered)]
    assert (first.outcome, second.outcome) == ("kernel", "prose")
    assert second.reason.startswith("the answer has no code")
    assert isinstance(told[-1], trace.Ended)
    assert (told[-1].best_step, told[-1].reason, told[-1].spent.written) == (1, "steps", 100)
    assert [event.at for event in told] == sorted(event.at for event in told)
    assert KEY not in path.read_text()
    assert path.stat().st_mode & 0o77 == 0


def test_delayed_text_is_recorded_before_what_followed(made: MakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[trace.AnyTraceEvent] = []
    recorder = made(heard=heard).recorder
    ticks = itertools.count(time.monotonic(), 0.001)
    monkeypatch.setattr(trace.time, "monotonic", lambda: next(ticks))
    recorder.piece(Text("so far"), Spent())
    recorder.piece(Usage(read=1, written=2), Spent())
    assert [type(event) for event in heard] == [trace.Wrote, trace.Counted]
    assert heard[0].at < heard[1].at
    for number in (1, 2):
        recorder.piece(CallPart(number, f'{{"source": "{number}'), Spent())
    recorder.piece(Finish("stop"), Spent())
    assert [event.text for event in heard if isinstance(event, trace.Drafted)] == ["1", "2"]
    state = WritingState()
    for event in heard:
        state.apply(event)
    assert state.since == heard[0].at


async def test_it_stops_when_nothing_gets_better(model_server: ModelServer, made: MakeAgent) -> None:
    model_server.replies = [streamed(kernel("1.2")), streamed(kernel("1.21"))]
    agent = made(steps=20, patience=3)
    await agent.play()
    assert (agent.reason, len(agent.attempts)) == ("no gain", 4)
    assert agent.best.step == 2  # better, but within the noise of two runs, so no gain


@pytest.mark.parametrize(
    ("word", "finish", "reason"), [("no", "refusal", "refused"), (kernel("None"), "stop", "harness")]
)
async def test_agent_stops_where_going_on_is_useless(
    model_server: ModelServer, made: MakeAgent, word: str, finish: str, reason: str
) -> None:
    model_server.replies = [streamed(word, finish=finish)]
    agent = made()
    await agent.play()
    assert (agent.reason, len(agent.attempts)) == (reason, 2)


async def test_a_provider_that_fails_leaves_what_was_found(model_server: ModelServer, made: MakeAgent) -> None:
    model_server.replies = [streamed(kernel("1.2")), status("401 Unauthorized")]
    agent = made()
    with pytest.raises(PlayerFailed, match="401"):
        await agent.play()
    assert agent.best is not None
    *_, end = trace.read_trace(agent.recorder.path)
    assert isinstance(end, trace.Ended)
    assert (end.best_step, end.reason.startswith("failed: ")) == (1, True)


async def test_cancelling_it_ends_the_trace_too(model_server: ModelServer, made: MakeAgent) -> None:
    model_server.replies = [dripping(events("anthropic", kernel("1.2"))[:700], b" ")]
    heard: list[trace.AnyTraceEvent] = []
    agent = made(heard=heard)
    task = asyncio.create_task(agent.play())
    while not (any(agent.recorder._unwritten.values()) or any(isinstance(event, trace.Wrote) for event in heard)):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(heard[-1], trace.Ended)
    assert heard[-1].reason == "cancelled"
    assert "".join(event.text for event in heard if isinstance(event, trace.Wrote))  # nothing that was written is lost


async def test_a_full_disk_does_not_stop_it(
    model_server: ModelServer, made: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_server.replies = [streamed(kernel("1.2"))]
    agent = made(steps=1)
    monkeypatch.setattr(Journal, "_flush", lambda self: self._report(OSError(28, "No space left on device")))
    assert await agent.play() is not None


async def test_judge_refuses_where_referee_has_no_jail(paths: Paths) -> None:
    problem = load_catalogue().find("13")
    task = Task(problem, choose_setting(problem, Choice(world=2, device="cpu"), Settings()))
    async with Engine(paths, command=COMMAND) as engine:
        for _ in range(2):  # also when the referee runs already
            with pytest.raises(MachineError, match="jail"):
                await JudgeAccess(engine, task, "model:m").start()
            with pytest.raises(MachineError, match="jail"):
                await JudgeAccess(engine, task, "model:m").judge(Kernel("pass"), "kernel.py")
        said: list[str] = []
        access = JudgeAccess(engine, task, "model:m", unsafe=True, warn=said.append)
        await access.start()
        access.warn("the trace is incomplete")
        assert said == ["the trace is incomplete"]
        found = (await access.judge(Kernel("pass"), "kernel.py")).report
        assert (found.verdict, found.jail) == (Verdict.PASS, "none")
        with pytest.raises(UsageError, match="sizes do not fit"):
            await access.judge(Kernel("refuse"), "kernel.py")
