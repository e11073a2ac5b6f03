"""The player of a model. It gives independent answers, or, as an agent, revises its kernel after each verdict."""

import asyncio

from arena.errors import PlayerFailed
from arena.models.budget import price_words
from arena.models.model import find_model, open_model
from arena.players import player
from arena.players.agent import Agent
from arena.players.trace import trace_header
from sandbox.machine.processes import hide_from_ptrace


class ModelPlayer(player.Player):
    """Submits the best kernel that a model wrote."""

    def __init__(self, name: player.PlayerName, setup: player.PlayerSetup) -> None:
        """May take seconds, because it may read a keyring.

        Raises:
            UsageError: no such model, no key, or dollars are limited and the model has no prices.
        """
        self.name = name
        self.model = model = find_model(name.name, setup.settings)
        self.facts = f"{model.model} · {model.provider} · {price_words(model)}"
        self._setup = setup
        self._feedback = setup.improves or name.kind is player.PlayerKind.AGENT
        open_model(name.name, setup.settings)  # raises its errors before anything starts
        setup.pool.close(setup.pool.open(model))
        hide_from_ptrace()  # this process now holds a key

    async def play(self, task: player.Task, access: player.KernelAccess) -> player.Submission:
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
            raise player.NoAnswer(failed, spent)
        assert agent is not None
        best = agent.best or (agent.attempts[-1] if agent.attempts else None)
        if best is None or best.answer.outcome != "kernel":
            reason = best.answer.outcome if best is not None else agent.reason
            return player.Submission(None, "", reason, spent, header.trace_id, agent.reason)
        return player.Submission(
            best.answer.source, "kernel.py", "", spent, header.trace_id, agent.reason, best.answer.files
        )
