"""Kernel access through a judge, for one player at one task. Kernels run in a jail unless the user allows otherwise.

Kernels of models are kept as revisions, the best in a file of the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from arena.machine.facts import require_jail
from arena.players.attempts import Attempt, best_of
from arena.players.player import KernelAccess, Task
from arena.players.trace import AnyTraceEvent, Ended, TraceHeader
from arena.records.run_record import view
from arena.runs.judge import Judge, Judgement, RunRequest, judge_to_end
from arena.runs.origin import Origin
from arena.runs.other_sizes import OtherSizesProgress, ignore, with_other_sizes
from arena.workspace.kernels import Workspace
from problems.specification import Problem
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict


class JudgeAccess(KernelAccess):
    """Judges every kernel immediately, and stores the player's attempts."""

    def __init__(
        self,
        judge: Judge,
        task: Task,
        player: str,
        *,
        steps: int = 1,
        rounds: int | None = None,
        budget_s: float = 2.5,
        unsafe: bool = False,
        other_sizes: bool = False,
        hear: Callable[[AnyTraceEvent], None] = lambda event: None,
        warn: Callable[[str], None] = lambda text: None,
        hear_other_size: Callable[[OtherSizesProgress], None] = ignore,
    ) -> None:
        """rounds, budget_s: as in a `RunRequest`. unsafe: run without a jail if the machine has none.

        other_sizes: judge correct kernels at other sizes, too. hear_other_size: called before each of these runs.
        """
        self.steps = steps
        self.attempts: list[Attempt] = []
        self.header: TraceHeader | None = None
        """Header of the player's trace; None before the trace begins."""
        self.ended: Ended | None = None
        self._judge, self._task, self._player = judge, task, player
        self._rounds, self._budget_s, self._unsafe = rounds, budget_s, unsafe
        self._hear, self._warn = hear, warn
        self._other_sizes, self._hear_other_size = other_sizes, hear_other_size

    async def start(self) -> None:
        """Starts the judge, with worlds for the task, which start while the player writes.

        Raises:
            MachineError: the judge does not start, or has no jail and `unsafe` is not set.
        """
        await self._judge.start(self._task.setting)
        require_jail(self._judge.jail, self._unsafe)

    async def judge(self, kernel: Kernel, name: str) -> Judgement:
        judgement = await self._run(kernel, name, self._rounds)
        report = judgement.report
        if not self._other_sizes or report.verdict is not Verdict.PASS:
            return judgement
        request = self._request(kernel, name)
        found = await with_other_sizes(self._judge, request, report, self._hear_other_size)
        return replace(judgement, others=tuple(found.other_sizes or ()))

    async def build(self, kernel: Kernel, name: str) -> Judgement:
        return await self._run(kernel, name, 0)

    async def judge_origin(self, origin: Origin) -> Origin:
        """Returns the origin with its verdict. Judges it if it has none. Raises as `judge`."""
        if origin.judgement is not None:
            return origin
        request = self._request(origin.kernel, origin.name, player=origin.player, origin="")
        return replace(origin, judgement=await judge_to_end(self._judge, request))

    async def compare(self) -> Judgement | None:
        """Times the best kernel against the task's origin, in one run. None if there is no correct kernel or no origin.

        Raises:
            ArenaError: it could not be run.
        """
        origin, best = self._task.origin, best_of(self.attempts)
        if origin is None or best is None or not best.passed:
            return None
        require_jail(self._judge.jail, self._unsafe)
        name = best.judgement.header.kernel_name if best.judgement is not None else "kernel.py"
        request = self._request(best.answer.kernel, name, versus=origin.rival)
        return await judge_to_end(self._judge, request)

    async def _run(self, kernel: Kernel, name: str, rounds: int | None) -> Judgement:
        require_jail(self._judge.jail, self._unsafe)
        return await judge_to_end(self._judge, self._request(kernel, name, rounds=rounds))

    def _request(self, kernel: Kernel, name: str, **other: Any) -> RunRequest:
        origin = self._task.origin.sha256 if self._task.origin is not None else ""
        usual = {"player": self._player, "rounds": self._rounds, "budget_s": self._budget_s, "origin": origin}
        return view(RunRequest, self._task, kernel, kernel_name=name, **usual | other)

    def began(self, header: TraceHeader) -> None:
        self.header = header

    def hear(self, event: AnyTraceEvent) -> None:
        if isinstance(event, Ended):
            self.ended = event
        self._hear(event)

    def attempted(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def warn(self, text: str) -> None:
        self._warn(text)


def keep_revisions(workspace: Workspace, attempts: Sequence[Attempt]) -> Attempt | None:
    """Saves all kernels as revisions. Returns the best one; the first if none was judged; None if there is none.

    Raises:
        FolderUnwritable: the workspace cannot be written.
    """
    written = [attempt for attempt in attempts if attempt.answer.outcome == "kernel"]
    for attempt in written:
        workspace.keep_revision(attempt.kernel.source, attempt.kernel.files)
    return best_of(attempts) or (written[0] if written else None)


def save_best(workspace: Workspace, problem: Problem, player: str, best: Attempt) -> Path:
    """Writes a kernel to the player's file in the workspace. A kernel of several files becomes a folder beside it.

    Raises:
        FolderUnwritable: the workspace cannot be written; the old file is unchanged.
    """
    path = workspace.kernel_path(problem, player)
    if best.kernel.files:
        return workspace.put_beside(path, best.answer.kernel)
    workspace.save(path, best.answer.source)
    return path
