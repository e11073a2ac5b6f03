"""The players of a sweep as authors: kernels of the arena, files, models, agents and agent programs."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from arena.errors import KernelUnreadable, PlayerFailed, UsageError
from arena.models.budget import Spent
from arena.models.budget_pool import BudgetPool
from arena.models.model import find_model, model_player
from arena.paths import Paths
from arena.players.entrant import (
    Author,
    KernelAccess,
    NoAnswer,
    PlayerKind,
    PlayerName,
    Submission,
    Task,
    parse_player,
)
from arena.players.model_entrant import Agent
from arena.players.program.program import AgentProgram, find_program
from arena.players.program.readiness import require_ready
from arena.players.program.watch import LIMIT
from arena.players.program_entrant import BUDGET, ProgramSetup, play
from arena.players.prompts.prompt import build_prompt
from arena.players.trace import TraceRecorder, trace_header
from arena.settings import Settings
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import named_kernel
from problems.catalogue import Catalogue
from problems.specification import Problem
from sandbox.machine.processes import hide_from_ptrace


@dataclass(frozen=True)
class AuthorSetup:
    """What authors work with."""

    settings: Settings
    catalogue: Catalogue
    paths: Paths
    pool: BudgetPool
    shots: int
    """Worked examples in a model's prompt."""
    steps: int
    """Kernels that an agent may have judged in one attempt."""
    complain: Callable[[str], None]
    """Says what went wrong and stops nothing, such as a trace that cannot be written."""


class NamedAuthor:
    """A kernel that has a word: the baseline, its reference forms, the house's."""

    fixed = True

    def __init__(self, player: PlayerName, catalogue: Catalogue) -> None:
        self.player = player
        self._catalogue = catalogue

    async def write(self, task: Task, access: KernelAccess) -> Submission:
        named = named_kernel(self.player.name, task.problem, self._catalogue, task.setting.device)
        assert named is not None
        name, source = named
        return Submission(source, name)


class FileAuthor:
    """Kernels in a folder: STEM.py, SLUG.py, ID.py, or kernel.py in a folder called so. A single file serves every problem."""

    fixed = True

    def __init__(self, player: PlayerName) -> None:
        """
        Raises:
            UsageError: there is no such file or folder, or it cannot be read.
        """
        self.player = player
        self._path = Path(player.name).expanduser().absolute()
        if not self._path.exists():
            raise UsageError(f"there is no file or folder {self._path}", "name the folder of your kernels")
        if not os.access(self._path, os.R_OK | (os.X_OK if self._path.is_dir() else 0)):
            raise UsageError(f"{self._path} cannot be read: Permission denied", "check its permissions")

    async def write(self, task: Task, access: KernelAccess) -> Submission:
        """
        Raises:
            UsageError: the folder has no kernel for this problem.
            KernelUnreadable: it has one, which cannot be read.
        """
        path = self._path if self._path.is_file() else _kernel_in(self._path, task.problem)
        try:
            kernel = await asyncio.to_thread(read_kernel, path)
        except UsageError as error:
            raise KernelUnreadable(error.message, error.advice) from None
        return Submission(kernel.text, path.name)


def _kernel_in(folder: Path, problem: Problem) -> Path:
    names = (problem.stem, problem.slug, str(problem.id), f"{problem.id:02d}")
    places = [place for name in names for place in (folder / f"{name}.py", folder / name / "kernel.py")]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(f"{folder} has no kernel for {problem.stem}", f"it would be {problem.stem}.py")
    return found


class ModelAuthor:
    """A model: one answer an attempt, or, as an agent, kernels and verdicts in turn until it is done."""

    fixed = False

    def __init__(self, player: PlayerName, stage: AuthorSetup) -> None:
        """
        Raises:
            UsageError: no such model, no key, or a budget in dollars for a model without prices.
        """
        self.player = player
        self._stage = stage
        self._as_agent = player.kind is PlayerKind.AGENT
        model_player(player.name, stage.settings)  # whatever is wrong with it is said before anything starts
        stage.pool.close(stage.pool.open(find_model(player.name, stage.settings)))
        hide_from_ptrace()  # this process now holds a key

    async def write(self, task: Task, access: KernelAccess) -> Submission:
        stage = self._stage
        budget = stage.pool.open(find_model(self.player.name, stage.settings))
        failed: PlayerFailed | None = None
        try:
            player = model_player(self.player.name, stage.settings, budget)
            player.name = str(self.player)
            prompt = await asyncio.to_thread(
                build_prompt, task.problem, task.setting, stage.catalogue, stage.paths, stage.shots
            )
            steps = stage.steps if self._as_agent else 1
            header = trace_header(task.problem, task.setting, player, prompt, steps, stage.pool.usd)
            recorder = TraceRecorder(header, stage.paths, self._trace_trouble, [])
            async with player:
                agent = Agent(
                    player,
                    access.judge if self._as_agent else None,
                    prompt,
                    recorder,
                    steps,
                    feedback=self._as_agent,
                    build=access.build if self._as_agent else None,
                )
                await agent.run()
        except PlayerFailed as error:
            failed = error
        finally:
            spent = stage.pool.close(budget)
        if failed is not None:
            raise NoAnswer(failed, spent)
        best = agent.best or (agent.attempts[-1] if agent.attempts else None)
        if best is None or best.answer.outcome != "kernel":
            reason = best.answer.outcome if best is not None else agent.reason
            return Submission(None, reason=reason, spent=spent, trace_id=header.trace_id)
        return Submission(best.answer.source, "kernel.py", "", spent, header.trace_id)

    def _trace_trouble(self, error: OSError) -> None:
        self._stage.complain(f"a trace of {self.player} is incomplete: {error}")


class ProgramAuthor:
    """An agent program, in a jail of its own: the best of the kernels that it had judged."""

    fixed = False

    def __init__(self, player: PlayerName, program: AgentProgram, stage: AuthorSetup) -> None:
        """
        Raises:
            UsageError: its model has no key, or no prices where there is a budget.
            MachineError: there is no jail for it, or no MCP SDK.
        """
        self.player = player
        self._program, self._stage = program, stage
        require_ready(program)
        if program.model is not None:
            stage.pool.close(stage.pool.open(program.model))

    async def write(self, task: Task, access: KernelAccess) -> Submission:
        stage, program = self._stage, self._program
        budget = stage.pool.open(program.model) if program.model is not None else None
        spent, played, failed = Spent(), None, None
        place = ProgramSetup(
            catalogue=stage.catalogue,
            paths=stage.paths,
            judge=access.judge,
            build=access.build,
            steps=stage.steps,
            budget=budget,
            budget_usd=stage.pool.usd,
            shots=stage.shots,
            complain=lambda error: stage.complain(f"a trace of {self.player} is incomplete: {error}"),
        )
        try:
            played = await play(program, task.problem, task.setting, place)
        except PlayerFailed as error:
            failed = error
        finally:
            if budget is not None:
                spent = stage.pool.close(budget)
        if failed is not None or played is None:
            raise NoAnswer(failed or PlayerFailed("it did not play"), spent)
        if played.reason.startswith(LIMIT):
            stage.complain(f"{self.player} was ended: {played.reason}")
        if played.best is None:
            told = played.reason == BUDGET or played.reason.startswith(LIMIT)
            reason = played.reason if told else "empty"
            return Submission(None, reason=reason, spent=spent, trace_id=played.trace_id)
        return Submission(played.best.answer.source, "kernel.py", "", spent, played.trace_id)


def make_author(word: str, stage: AuthorSetup) -> Author:
    """The author that a player's name stands for.

    Raises:
        UsageError: there is no such player, model, key, agent or folder.
    """
    player = parse_player(word)
    match player.kind:
        case PlayerKind.NAMED:
            return NamedAuthor(player, stage.catalogue)
        case PlayerKind.FILE:
            return FileAuthor(player)
        case PlayerKind.MODEL:
            return ModelAuthor(player, stage)
        case PlayerKind.AGENT:
            program = find_program(player.name, stage.settings)
            return ModelAuthor(player, stage) if program is None else ProgramAuthor(player, program, stage)
