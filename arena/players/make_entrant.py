"""The sides of a duel: a fixed kernel, a file, a model, or an agent program.

A side hands in kernels at its table and leaves when it is done.
"""

import asyncio
from pathlib import Path
from typing import Protocol

from arena.duel.events import DuelPlayer
from arena.foreign_text import printable
from arena.models.budget import Budget, Spent
from arena.models.model import ModelPlayer, find_model, model_player
from arena.paths import Paths
from arena.players.entrant import check_own_name
from arena.players.model_entrant import Agent
from arena.players.program.program import AgentProgram, named_program
from arena.players.program.readiness import require_ready
from arena.players.program_entrant import ProgramSetup, play
from arena.players.prompts.prompt import build_prompt
from arena.players.trace import (
    Answered,
    AnyTraceEvent,
    Called,
    Counted,
    Drafted,
    Retried,
    TraceRecorder,
    Wrote,
    trace_header,
)
from arena.runs.judge import Judgement
from arena.settings import Settings
from arena.workspace.house import HOUSE
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import named_kernel
from arena.workspace.watcher import KernelWatcher
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.machine.processes import hide_from_ptrace
from sandbox.protocol.events import Setting

MODEL = "model:"
AGENT = "agent:"


class DuelTable(Protocol):
    """One side's table at the duel."""

    @property
    def rounds(self) -> int:
        """Kernels that may be handed in."""

    @property
    def clocked(self) -> bool:
        """There is a clock: a file may be improved until it has run out."""

    async def judge(self, source: str, name: str) -> Judgement:
        """Hands a kernel in and waits for its verdict. What was handed in is judged even if the side leaves meanwhile.

        Raises:
            ArenaError: it could not be run.
        """

    async def build(self, source: str, name: str) -> Judgement:
        """Compiles a kernel and calls it without handing it in.

        Raises:
            ArenaError: it could not be run.
        """

    def wrote(self, text: str) -> None:
        """Shows more of what is being written."""

    def said(self, text: str) -> None:
        """Says a word that changes nothing."""

    def spent(self, spent: Spent) -> None:
        """Shows what was used so far."""


class DuelSide(Protocol):
    """One player. `play` ends when the player wants no more; it may be cancelled at any time."""

    player: DuelPlayer

    async def play(self, table: DuelTable) -> str:
        """Plays. Returns why it left, `done` as a rule.

        Raises:
            PlayerFailed: a model's provider failed: the side loses what it has not handed in.
            ArenaError: the duel cannot go on.
        """


class FixedSide:
    """A kernel that does not change: the house's, the baseline, or a reference form of the baseline."""

    def __init__(self, player: DuelPlayer, name: str, source: str) -> None:
        self.player = player
        self.name = name
        self.source = source

    async def play(self, table: DuelTable) -> str:
        await table.judge(self.source, self.name)
        return "done"


class FileSide:
    """A kernel file. With a clock every save is handed in, else the file as it is."""

    def __init__(self, player: DuelPlayer, path: Path) -> None:
        self.player = player
        self.path = path

    async def play(self, table: DuelTable) -> str:
        kernel = await asyncio.to_thread(read_kernel, self.path)
        watcher = KernelWatcher(self.path, kernel.sha256)
        await table.judge(kernel.text, self.path.name)
        if not table.clocked:
            return "done"
        try:
            async for kernel in watcher:
                await table.judge(kernel.text, self.path.name)
        finally:
            watcher.stop()
        return "done"


class ModelSide:
    """A model that writes, reads the verdict and writes again."""

    def __init__(
        self,
        player: DuelPlayer,
        writer: ModelPlayer,
        problem: Problem,
        setting: Setting,
        catalogue: Catalogue,
        paths: Paths,
        budget_usd: float | None = None,
    ) -> None:
        """writer: with the budget of these dollars."""
        self.player = player
        self.writer = writer
        self.budget_usd = budget_usd
        self.problem = problem
        self.setting = setting
        self.catalogue = catalogue
        self.paths = paths

    async def play(self, table: DuelTable) -> str:
        prompt = await asyncio.to_thread(build_prompt, self.problem, self.setting, self.catalogue, self.paths)
        header = trace_header(self.problem, self.setting, self.writer, prompt, table.rounds, self.budget_usd)
        recorder = TraceRecorder(
            header,
            self.paths,
            lambda error: table.said(f"the model's trace is incomplete: {error}"),
            [lambda event: _tell(table, event)],
        )
        async with self.writer:
            agent = Agent(
                self.writer,
                table.judge,
                prompt,
                recorder,
                steps=table.rounds,
                patience=None,
                build=table.build,
            )
            await agent.run()
        if agent.reason == "budget":
            return self.writer.budget.reached
        return "done" if agent.reason == "steps" else agent.reason


class ProgramSide:
    """An agent program, in a jail of its own, with the arena's tools."""

    def __init__(
        self,
        player: DuelPlayer,
        program: AgentProgram,
        problem: Problem,
        setting: Setting,
        catalogue: Catalogue,
        paths: Paths,
        budget_usd: float | None = None,
    ) -> None:
        """
        Raises:
            UsageError: dollars are limited, and its model has no prices.
        """
        self.player = player
        self.budget = Budget(program.model, budget_usd) if program.model is not None else None
        self.budget_usd = budget_usd
        self.program = program
        self.problem = problem
        self.setting = setting
        self.catalogue = catalogue
        self.paths = paths

    async def play(self, table: DuelTable) -> str:
        place = ProgramSetup(
            catalogue=self.catalogue,
            paths=self.paths,
            judge=table.judge,
            build=table.build,
            steps=table.rounds,
            budget=self.budget,
            budget_usd=self.budget_usd,
            listeners=(lambda event: _tell(table, event),),
            complain=lambda error: table.said(f"the agent's trace is incomplete: {error}"),
        )
        reason = (await play(self.program, self.problem, self.setting, place)).reason
        return self.budget.reached if self.budget is not None and reason == "budget" else reason


def _tell(table: DuelTable, event: AnyTraceEvent) -> None:
    match event:
        case Wrote() | Drafted():
            table.wrote(event.text)
        case Counted():
            table.spent(event.spent)
        case Retried():
            table.said(f"asked again in {event.wait_s:.0f} s: {event.reason}")
        case Called():
            table.said(f"calls {printable(event.tool)}")
        case Answered() if event.reason:
            table.said(event.reason)


def spends_money(side: DuelSide) -> bool:
    """Whether a provider is paid for what this side does."""
    return isinstance(side, ModelSide) or (isinstance(side, ProgramSide) and side.budget is not None)


def make_side(
    word: str,
    problem: Problem,
    setting: Setting,
    settings: Settings,
    catalogue: Catalogue,
    paths: Paths,
    player: str = "you",
    budget_usd: float | None = None,
) -> DuelSide:
    """The side that a word of the command line stands for: a named kernel, `model:NAME`, `agent:PROGRAM`, else a kernel file.

    player: the owner of the file. budget_usd: dollars that a model or an agent program may spend; None: no limit.

    Raises:
        UsageError: the word's kernel cannot be had here, there is no such model or key, dollars are limited and it has no
            prices, or the file cannot be read.
        MachineError: there is no jail for an agent program, or no MCP SDK.
    """
    if named := named_kernel(word, problem, catalogue, setting.device):
        return FixedSide(DuelPlayer("house" if word == HOUSE else "baseline", word), *named)
    if word.startswith(MODEL):
        name = word.removeprefix(MODEL)
        writer = model_player(name, settings, Budget(find_model(name, settings), budget_usd))
        hide_from_ptrace()  # this process now holds a key
        return ModelSide(
            DuelPlayer("model", writer.name), writer, problem, setting, catalogue, paths, budget_usd
        )
    if word.startswith(AGENT):
        program = named_program(word.removeprefix(AGENT), settings)
        require_ready(program)
        return ProgramSide(DuelPlayer("model", word), program, problem, setting, catalogue, paths, budget_usd)
    path = Path(word).expanduser().absolute()
    read_kernel(path)
    check_own_name(player)
    return FileSide(DuelPlayer("file", player, str(path)), path)
