"""Judging of one player's kernels in one setting. Models' kernels run in a jail only, unless the user allows otherwise."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from arena.machine.jail_policy import require_jail
from arena.runs.judge import Judge, Judgement, judge_to_end
from arena.runs.run_request import RunRequest
from problems.specification import Problem
from sandbox.protocol.events import Setting

JudgeKernel = Callable[[str, str], Awaitable[Judgement]]
"""Judges a kernel's text; the second argument is the file name shown in tracebacks. Raises ArenaError when it cannot be run."""


@dataclass
class PlayerJudge:
    """A judge with everything but the kernel filled in. Calling it is a `JudgeKernel`, and so is `build`."""

    judge: Judge
    problem: Problem
    setting: Setting
    player: str
    rounds: int | None = None
    budget_s: float = 1.0
    unsafe: bool = False
    """Run without a jail where there is none."""

    async def start(self) -> None:
        """Starts the judge.

        Raises:
            MachineError: it does not start, or has no jail and `unsafe` is not set.
        """
        await self.judge.start()
        require_jail(self.judge.jail, self.unsafe)

    async def __call__(self, source: str, name: str) -> Judgement:
        return await self._judge(source, name, self.rounds)

    async def build(self, source: str, name: str) -> Judgement:
        """Compiles `source` and calls it, without timing it.

        Raises:
            ArenaError: it could not be run.
        """
        return await self._judge(source, name, 0)

    async def _judge(self, source: str, name: str, rounds: int | None) -> Judgement:
        require_jail(self.judge.jail, self.unsafe)
        request = RunRequest(
            problem=self.problem,
            setting=self.setting,
            kernel_name=name,
            source=source,
            player=self.player,
            rounds=rounds,
            budget_s=self.budget_s,
        )
        return await judge_to_end(self.judge, request)
