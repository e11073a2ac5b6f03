"""What evaluation frameworks share: prompts as a sweep sends them, one judge in turn, verdicts as numbers."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stored_runs
from scripted_referee import COMMAND as SCRIPTED

import arena.api
from arena import Arena, Verdict, reward
from arena.board.definitions import is_fast
from arena.board.scorecard import NOISY, outcome_of
from arena.errors import MachineError, UsageError
from arena.models.answer import ModelAnswer
from arena.models.budget import Spent
from arena.models.conversation import Finish
from arena.models.stand_in import serve
from arena.paths import Paths
from arena.players.attempts import Attempt
from arena.players.prompt import build_prompt
from arena.records.index import Store
from arena.runs.engine import Engine
from arena.runs.judge import Judgement
from arena.sweep.records import Cell
from pkb_arena.evaluation import NUMBERS, SharedJudge, Terms, numbers, report_of, rows, words
from sandbox.protocol.events import Interval, Result
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.result import Roofline

FAST = ("fast_1", "fast_1_5", "fast_2")
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


TIMED = {"call": Interval(2.0, 1.8, 2.2), "clock": "call", "roofline": Roofline(1.0, 40.0, "memory")}
RESULTS = [
    *(stored_runs.result(outcome=told, **TIMED) for told in ("faster", "even", "slower", NOISY)),
    stored_runs.result(),
    stored_runs.result(Verdict.WRONG_RESULT),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.outcome or result.verdict)
def test_numbers_are_those_of_the_board(result: Result) -> None:
    judgement = Judgement(stored_runs.header("r"), result)
    report, attempt = judgement.report, Attempt(1, ModelAnswer("", Finish("stop"), Spent()), judgement)
    cell = Cell(slug="allreduce", setting=stored_runs.SETTING, player="model:m", attempt=1, catalogue="")
    board = outcome_of(stored_runs.cell_result(cell, str(result.verdict), report=report))
    assert numbers(attempt) == {
        "correct": board.passed,
        "faster": board.faster,
        "speedup": board.speedup or 0,
        **{name: is_fast(board.speedup, board.passed, p) for name, p in zip(FAST, (1.0, 1.5, 2.0), strict=True)},
        "share_of_bound": (board.percent or 0) / 100,
        "reward": reward(report),
    }


def test_nothing_judged_has_no_number() -> None:
    assert numbers(None) == dict.fromkeys(NUMBERS, 0.0)


RIGHT = "pass\ndef solution(tensor):\n    return tensor\n"
WRONG = RIGHT.replace("pass", "wrong", 1)


@pytest.fixture
def traces(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """traces(turns): a rollout of verifiers' own command at each of two problems, judged by the scripted referee.

    The second answer is right. Needs the extra `verifiers`.
    """
    main = pytest.importorskip("verifiers.v1.cli.eval.main").main
    monkeypatch.setattr(arena.api, "Engine", partial(Engine, command=SCRIPTED))
    monkeypatch.setenv("KEY", "none")
    server = serve(lambda prompt: [f"```python\n{RIGHT if WRONG in prompt else WRONG}```"])
    url = f"http://127.0.0.1:{server.server_port}/v1"
    taskset = "problems=1,2 device=cpu world=2 unsafe=true"
    options = [f"--env.taskset.{name}={value}" for name, value in (each.split("=") for each in taskset.split())]

    def run(turns: int) -> list[dict[str, Any]]:
        client = ["-m", "m", "--client.base-url", url, "--client.api-key-var", "KEY"]
        main(["pkb-arena", *options, f"--env.turns={turns}", *client, "-o", str(tmp_path), "--no-push", "--no-rich"])
        (found,) = tmp_path.glob("*/traces.jsonl")
        return [json.loads(line)["traces"][0] for line in found.read_text().splitlines()]

    yield run
    server.shutdown()


@pytest.mark.filterwarnings("ignore::Warning")  # of the framework
def test_a_model_reads_its_verdict_and_improves(traces: Any) -> None:
    found = traces(2)
    assert [trace["metrics"]["correct"] for trace in found] == [1, 1]
    assert {trace["info"]["run"]["verdict"] for trace in found} == {"PASS"}


@pytest.mark.filterwarnings("ignore::Warning")
def test_one_turn_gives_no_feedback(traces: Any) -> None:
    assert [trace["metrics"]["correct"] for trace in traces(1)] == [0, 0]
