"""What evaluation frameworks share: prompts as a sweep sends them, one judge in turn, verdicts as numbers."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from scripted_referee import COMMAND as SCRIPTED

from arena import Arena, Verdict
from arena.errors import MachineError, UsageError
from arena.paths import Paths
from arena.players.attempts import Attempt
from arena.players.prompt import build_prompt
from arena.records.index import Store
from arena.runs.engine import Engine
from arena.runs.judge import Judgement
from pkb_arena.evaluation import NUMBERS, SharedJudge, Terms, numbers, report_of, rows, words
from sandbox.protocol.kernel_files import Kernel

TERMS = Terms(device="cpu", world=2, unsafe=True)


@pytest.fixture
async def judge(paths: Paths) -> AsyncIterator[SharedJudge]:
    async with Engine(paths, command=SCRIPTED) as engine:
        judge = SharedJudge(lambda: Arena(judge=engine))
        yield judge
        await judge.close()


def test_a_row_has_the_prompt_of_a_sweep(paths: Paths) -> None:
    row, other = rows(Terms(problems="13,1", device="cpu", world=2))
    assert (row.problem.id, other.problem.id, row.facts["category"]) == (1, 13, "collective")
    prompt = build_prompt(row.problem, row.setting, Arena().catalogue, paths).conversation
    assert (row.system, row.user) == (prompt.system, prompt.messages[0].content)
    with pytest.raises(UsageError):
        rows(Terms(problems="none"))


async def test_kernels_are_judged_in_turn_for_their_player(judge: SharedJudge, paths: Paths) -> None:
    sources = ("pass", "wrong", "pass\n# another")
    found = await asyncio.gather(*(judge.judge(TERMS, "13", Kernel(text), "model:m") for text in sources))
    assert [each.report.verdict for each in found if each.report] == [Verdict.PASS, Verdict.WRONG_RESULT, Verdict.PASS]
    assert len(Store(paths.database, paths.runs).history(13, "model:m", 9)) == 3
    assert "PASS" in words(found[0])
    assert report_of(found[0])["player"] == "model:m"


async def test_a_harness_that_fails_twice_gives_no_verdict(judge: SharedJudge) -> None:
    with pytest.raises(MachineError):
        await judge.judge(TERMS, "13", Kernel("die"), "model:m")


async def test_a_cancelled_call_cancels_its_run(judge: SharedJudge) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await judge.judge(TERMS, "13", Kernel("wait"), "model:m")
    assert (await judge.judge(TERMS, "13", Kernel("pass"), "model:m")).passed


async def test_only_speedup_beyond_noise_is_number(judge: SharedJudge) -> None:
    attempt = await judge.judge(TERMS, "13", Kernel("pass"), "model:m")
    assert numbers(None) == dict.fromkeys(NUMBERS, 0.0)
    found = numbers(attempt)
    assert set(found) == set(NUMBERS)
    assert [found[name] for name in ("faster", "speedup", "fast_1", "fast_2")] == [1, 1.5, 1, 0]
    noisy = msgspec.structs.replace(attempt.judgement.result, outcome="too noisy")
    found = numbers(Attempt(1, attempt.answer, Judgement(attempt.judgement.header, noisy)))
    assert (found["correct"], found["faster"], found["speedup"], found["fast_1"]) == (1, 0, 0, 0)
