"""The arena's judge, as those who let models write kernels use it: never without a jail."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from arena.engine import Engine
from arena.errors import MachineError, UsageError
from arena.foreign_text import printable
from arena.jail_policy import require_jail
from arena.results import RunReport, report
from arena.run_request import RunRequest
from problems.specification import Problem
from sandbox.events import AnyEvent, Cancelled, Log, Refused, Setting

PRINTED_CHARACTERS = 4000


@dataclass(frozen=True)
class Judgement:
    """What came of one run."""

    report: RunReport
    printed: str = ""
    """The beginning of what the ranks printed, with the rank in front of each piece."""


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
    _printed: list[str] = field(default_factory=list, init=False)
    _unsubscribe: Callable[[], None] = field(default=lambda: None, init=False)

    async def __aenter__(self) -> "EngineJudge":
        self._unsubscribe = self.engine.subscribe(self._listen)
        try:
            await self.engine.start()
            require_jail(self.engine.jail, self.unsafe)
        except BaseException:
            self._unsubscribe()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._unsubscribe()

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
        self._printed.clear()
        request = RunRequest(
            problem=self.problem,
            setting=self.setting,
            kernel_name=name,
            source=source,
            player=self.player,
            rounds=rounds,
            budget_s=self.budget_s,
        )
        run_id = await self.engine.run(request)
        try:
            end = await self.engine.wait(run_id)
        except BaseException:
            await self.engine.cancel()
            raise
        if isinstance(end, Refused):
            raise UsageError(end.message, end.advice)
        if isinstance(end, Cancelled):
            raise MachineError(f"the run was cancelled in its phase {end.phase}", "run it again")
        printed = "".join(self._printed)[:PRINTED_CHARACTERS]
        return Judgement(report(self.engine.header(run_id), end.result), printed)

    def _listen(self, event: AnyEvent) -> None:
        if isinstance(event, Log) and sum(map(len, self._printed)) < PRINTED_CHARACTERS:
            self._printed.append(f"[rank {event.rank}] {printable(event.text)}")
