"""The arena's judge, as those who let models write kernels use it: never without a jail."""

from dataclasses import dataclass
from typing import Protocol

from arena.engine import Engine
from arena.jail_policy import require_jail
from arena.kernel_run import Judgement, run_to_end
from arena.run_request import RunRequest
from problems.specification import Problem
from sandbox.events import Setting


class Judge(Protocol):
    """Runs a kernel's text."""

    async def __call__(self, source: str, name: str) -> Judgement:
        """Judges `source`; `name` is shown in tracebacks.

        Raises:
            ArenaError: it could not be run.
        """


@dataclass
class EngineJudge:
    """Runs kernels of one player in one setting."""

    engine: Engine
    problem: Problem
    setting: Setting
    player: str
    rounds: int | None = None
    budget_s: float = 1.0
    unsafe: bool = False
    """Run without a jail where there is none."""

    async def start(self) -> None:
        """Starts the referee.

        Raises:
            MachineError: it does not start, or has no jail and `unsafe` is not set.
        """
        await self.engine.start()
        require_jail(self.engine.jail, self.unsafe)

    async def __call__(self, source: str, name: str) -> Judgement:
        return await self._run(source, name, self.rounds)

    async def build(self, source: str, name: str) -> Judgement:
        """Compiles `source` and calls it, without timing it.

        Raises:
            ArenaError: it could not be run.
        """
        return await self._run(source, name, 0)

    async def _run(self, source: str, name: str, rounds: int | None) -> Judgement:
        require_jail(self.engine.jail, self.unsafe)
        request = RunRequest(
            problem=self.problem,
            setting=self.setting,
            kernel_name=name,
            source=source,
            player=self.player,
            rounds=rounds,
            budget_s=self.budget_s,
        )
        judgement, _ = await run_to_end(self.engine, request)
        return judgement
