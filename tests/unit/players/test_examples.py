"""The prompts say that their worked examples pass: they do, on real ranks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from arena.paths import Paths
from arena.players.judge_access import JudgeAccess
from arena.players.player import Task
from arena.players.prompt import Example, load_examples
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

pytestmark = [pytest.mark.slow, pytest.mark.problems]

EXAMPLES = [example for example in load_examples(load_catalogue()) if example.device != "cuda"]


@pytest.fixture
async def engine(paths: Paths, shared_referee: Any) -> AsyncIterator[Engine]:
    async with Engine(paths, command=shared_referee.command) as engine:
        yield engine


async def test_every_example_passes(engine: Engine) -> None:
    for example in EXAMPLES:
        assert await verdict(engine, example, world=3) is Verdict.PASS, example.problem.slug


async def verdict(engine: Engine, example: Example, world: int) -> Verdict:
    setting = choose_setting(example.problem, Choice(device="cpu", world=world), Settings())
    access = JudgeAccess(engine, Task(example.problem, setting), "model:test", rounds=0, unsafe=True)
    return (await access.judge(Kernel(example.source), "example.py")).report.verdict
