"""The players of models and of named kernels, and the player for a name."""

import asyncio
from pathlib import Path

from arena.errors import PlayerFailed
from arena.models.budget import price_words
from arena.models.model import find_model, open_model
from arena.players.agent import Agent
from arena.players.file import FilePlayer
from arena.players.player import (
    KernelAccess,
    NoAnswer,
    Player,
    PlayerKind,
    PlayerName,
    PlayerSetup,
    Submission,
    Task,
    parse_player,
    user_name,
)
from arena.players.program.player import ProgramPlayer
from arena.players.program.program import find_program
from arena.players.trace import trace_header
from arena.workspace.kernels import read_kernel
from arena.workspace.named_kernels import NAMED, named_kernel
from problems.catalogue import Catalogue
from sandbox.machine.processes import hide_from_ptrace

MODEL, AGENT, FILE = (f"{kind}:" for kind in (PlayerKind.MODEL, PlayerKind.AGENT, PlayerKind.FILE))


class FixedPlayer(Player):
    """Submits the kernel that the player's name stands for."""

    fixed = True

    def __init__(self, name: PlayerName, catalogue: Catalogue) -> None:
        self.name = name
        self._catalogue = catalogue

    def check(self, task: Task) -> None:
        self._kernel(task)

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        file_name, source = self._kernel(task)
        return Submission(source, file_name)

    def _kernel(self, task: Task) -> tuple[str, str]:
        found = named_kernel(self.name.name, task.problem, self._catalogue, task.setting.device)
        assert found is not None
        return found


class ModelPlayer(Player):
    """Submits the best kernel that a model wrote."""

    def __init__(self, name: PlayerName, setup: PlayerSetup) -> None:
        """May take seconds, because it may read a keyring.

        Raises:
            UsageError: no such model, no key, or dollars are limited and the model has no prices.
        """
        self.name = name
        self.model = model = find_model(name.name, setup.settings)
        self.facts = f"{model.model} · {model.provider} · {price_words(model)}"
        self._setup = setup
        self._feedback = setup.improves or name.kind is PlayerKind.AGENT
        open_model(name.name, setup.settings)  # raises its errors before anything starts
        setup.pool.close(setup.pool.open(model))
        hide_from_ptrace()  # this process now holds a key

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        setup = self._setup
        assert self.model is not None
        budget = setup.pool.open(self.model)
        failed: PlayerFailed | None = None
        agent: Agent | None = None
        try:
            prompt = await asyncio.to_thread(setup.prompt, task)
            async with open_model(self.name.name, setup.settings, budget) as client:
                client.name = str(self.name)
                header = trace_header(
                    task.problem, task.setting, client, prompt, access.steps, setup.pool.usd, task.origin
                )
                recorder = access.record(header, setup.paths)
                agent = Agent(client, access, prompt, recorder, setup.patience, self._feedback)
                await agent.run()
        except PlayerFailed as error:
            failed = error
        finally:
            spent = setup.pool.close(budget)
        if failed is not None and (agent is None or agent.best is None):
            raise NoAnswer(failed, spent)
        assert agent is not None
        best = agent.best or (agent.attempts[-1] if agent.attempts else None)
        if best is None or best.answer.outcome != "kernel":
            reason = best.answer.outcome if best is not None else agent.reason
            return Submission(None, "", reason, spent, header.trace_id, agent.reason)
        return Submission(best.answer.source, "kernel.py", "", spent, header.trace_id, agent.reason, best.answer.files)


def make_player(word: str, setup: PlayerSetup) -> Player:
    """Creates the player for a name (see `arena.players.player`).

    May take seconds, because it may test a jail or read a keyring.

    Raises:
        UsageError: there is no such player, model, key, agent or folder, or dollars are limited and its model has no prices.
        MachineError: there is no jail for an agent program, or no MCP SDK.
    """
    name = parse_player(word)
    match name.kind:
        case PlayerKind.FILE:
            return FilePlayer(name, Path(name.name))
        case PlayerKind.MODEL:
            return ModelPlayer(name, setup)
        case PlayerKind.AGENT:
            program = find_program(name.name, setup.settings)
            return ModelPlayer(name, setup) if program is None else ProgramPlayer(name, program, setup)
        case _:
            return FixedPlayer(name, setup.catalogue)


def make_player_or_file(word: str, owner: str, task: Task, setup: PlayerSetup) -> Player:
    """As `make_player`, but any other word is the path of `owner`'s kernel file. Checks that the player fits the task.

    Raises:
        UsageError: as `make_player`, or the player has no kernel for this task, or the file cannot be read.
        MachineError: as `make_player`.
    """
    if word in NAMED or word.startswith((MODEL, AGENT, FILE)):
        player = make_player(word, setup)
    else:
        path = Path(word).expanduser().absolute()
        read_kernel(path)
        player = FilePlayer(user_name(owner), path)
    player.check(task)
    return player
