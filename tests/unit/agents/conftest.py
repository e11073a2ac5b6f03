"""A scripted agent program in its jail, and the scripted referee."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import playing_agent
import pytest
from no_jail import no_jail
from scripted_agents import CAPS, KERNELS, Playing, UntilGone
from scripted_referee import COMMAND as REFEREE
from waiting import comes_true

from arena.models.budget import BudgetPool, Spent
from arena.paths import Paths
from arena.players.attempts import Attempt
from arena.players.judge_access import JudgeAccess
from arena.players.player import PlayerKind, PlayerName, PlayerSetup, Task
from arena.players.program.player import ProgramPlayer
from arena.players.program.program import AgentProgram
from arena.runs.engine import Engine
from arena.setting_choice import Choice, choose_setting
from arena.settings import ModelSettings, Settings
from problems.catalogue import load_catalogue
from sandbox.jail.choice import choose
from sandbox.jail.profiles import WITH_AGENTS, Caps

CATALOGUE = load_catalogue()
PROBLEM = CATALOGUE.find("1")
SETTING = choose_setting(PROBLEM, Choice(world=2, device="cpu", dtype="float32"), Settings())


@dataclass(frozen=True)
class Played:
    """The outcome of one play of the program."""

    trace_id: str
    attempts: list[Attempt]
    best: str | None
    reason: str
    spent: Spent


@pytest.fixture
def until_gone() -> UntilGone:
    """until_gone(script): waits until no process has this path in its command line."""

    def started_with(word: str) -> list[str]:
        found = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if word.encode() in Path("/proc", process, "cmdline").read_bytes():
                    found.append(process)
        return found

    async def wait(script: Path) -> None:
        await comes_true(lambda: not started_with(str(script)))

    return wait


@pytest.fixture
def jailed_agents(jail: None) -> None:
    """Skips a test of programs in a jail if this machine's jail has no process table of its own."""
    if choose().name not in WITH_AGENTS:
        no_jail(choose().rejected.values())


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A copy of the scripted agent that every user may read."""
    copy = tmp_path / "agent.py"
    shutil.copy(playing_agent.__file__, copy)
    copy.chmod(0o644)
    return copy


@pytest.fixture
async def engine(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine with the scripted referee."""
    monkeypatch.setenv("PKB_SCRIPTED_JAIL", "full")
    async with Engine(paths, command=REFEREE) as engine:
        yield engine


@pytest.fixture
def playing(engine: Engine, paths: Paths, script: Path) -> Playing:
    """playing(model=None, usd=None, seconds=600, caps=CAPS, NAME=value...): plays the program with these variables.

    seconds: its time limit; on a busy machine, a second of CPU time takes many seconds.
    """

    async def start(
        model: ModelSettings | None = None,
        usd: float | None = None,
        seconds: float = 600,
        caps: Caps = CAPS,
        **variables: str,
    ) -> Played:
        environment = KERNELS | {"ENDPOINT": "{endpoint}"} | variables
        program = AgentProgram("test", ("{python}", str(script)), model, "", seconds, (script,), environment, caps)
        name = PlayerName(PlayerKind.AGENT, "test")
        player = ProgramPlayer(name, program, PlayerSetup(Settings(), CATALOGUE, paths, BudgetPool(usd)))
        task = Task(PROBLEM, SETTING)
        access = JudgeAccess(engine, task, str(name), steps=3)
        await access.start()
        found = await player.play(task, access)
        return Played(found.trace_id, access.attempts, found.kernel and found.kernel.source, found.ended, found.spent)

    return start
