"""The workers of a sweep, and the queue of their jobs: agents' tries first, then kernels of a worker's current problem."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from arena.errors import MachineError, RefereeFailed, RunCancelled
from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.players.player import KernelAccess, Player, PlayerKind, Submission, Task
from arena.players.trace import AnyTraceEvent, Ended
from arena.runs.judge import Judge, Judgement, RunRequest, judge_to_end
from arena.sweep.records import Cell
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

TRIES = 3
"""Tries of a run that ends in a harness error."""


@dataclass(frozen=True)
class Worker:
    """One judge. It takes one run at a time."""

    name: str
    judge: Judge
    machine: Machine


class WorkerLost(MachineError):
    """A worker has failed for good. Others may go on."""


async def judge_at(worker: Worker, request: RunRequest) -> tuple[Judgement, int]:
    """Judges a request, and repeats it if the harness fails. Returns the judgement and the number of tries.

    Raises:
        RunRefused: the setting cannot be run.
        WorkerLost: the last try ended without a judgement.
        MachineError: this machine's files or devices prevent it.
    """
    for tries in range(1, TRIES + 1):
        try:
            judgement = await judge_to_end(worker.judge, request)
        except (RefereeFailed, RunCancelled) as error:
            if tries == TRIES:
                raise WorkerLost(f"{worker.name} judges no more: {error.message}", error.advice) from None
            continue
        if judgement.result.verdict is not Verdict.HARNESS_ERROR:
            break
    return judgement, tries


@dataclass(frozen=True)
class KernelJob:
    """A cell of the sweep with a kernel to judge, or with the reason why there is none."""

    cell: Cell
    task: Task
    player: Player
    submission: Submission | None
    """None for a fixed player, which is asked for its kernel when a worker is free."""


@dataclass(frozen=True)
class Try:
    """A kernel that a player tries while it writes. The player gets the verdict."""

    task: Task
    player: str
    kernel: Kernel
    name: str
    rounds: int | None
    judgement: asyncio.Future[Judgement]


class Jobs:
    """Holds at most `most` submissions that wait for a worker. Fixed players' kernels are made when a worker is free."""

    def __init__(self, fixed: Iterator[KernelJob], most: int) -> None:
        """fixed: the cells of fixed players, problem by problem."""
        self._fixed = fixed
        self._next_fixed: KernelJob | None = next(fixed, None)
        self._most = most
        self._tries: deque[Try] = deque()
        self._ready: list[KernelJob] = []
        self._changed = asyncio.Condition()
        self._writing = True

    async def offer(self, entry: KernelJob) -> None:
        """Queues a submission; blocks while the queue is full."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._ready) < self._most)
            self._ready.append(entry)
            self._changed.notify_all()

    async def try_out(self, job: Try) -> Judgement:
        """Queues a kernel before everything else, and waits for its verdict."""
        async with self._changed:
            self._tries.append(job)
            self._changed.notify_all()
        return await job.judgement

    async def no_more_writing(self) -> None:
        """Marks the end of writing: workers stop when the queue is empty."""
        async with self._changed:
            self._writing = False
            self._changed.notify_all()

    async def take(self, slug: str) -> KernelJob | Try | None:
        """Returns the next job for a worker whose last problem was `slug`; None when no more jobs will come."""
        async with self._changed:
            while (job := self._choose(slug)) is None and self._writing:  # also if only cancelled tries were queued
                await self._changed.wait()
            self._changed.notify_all()
            return job

    def _choose(self, slug: str) -> KernelJob | Try | None:
        while self._tries:
            if not (job := self._tries.popleft()).judgement.done():  # else its player was cancelled
                return job
        same = next((entry for entry in self._ready if entry.cell.slug == slug), None)
        if same is None and self._ready and not self._stays(slug):
            same = self._ready[0]
        if same is not None:
            self._ready.remove(same)
            return same
        entry, self._next_fixed = self._next_fixed, None
        if entry is not None:
            self._next_fixed = next(self._fixed, None)
        return entry

    def _stays(self, slug: str) -> bool:
        """Whether a fixed player's kernel goes first: it is of the same problem, or the queue has room."""
        if self._next_fixed is None:
            return False
        return self._next_fixed.cell.slug == slug or len(self._ready) < self._most


class WorkerAccess(KernelAccess):
    """A player's kernel access in a sweep: its tries go to the front of the queue."""

    def __init__(self, jobs: Jobs, task: Task, player: Player, steps: int, warn: Callable[[str], None]) -> None:
        """steps: kernels that an agent may have judged."""
        self.judges = player.name.kind is not PlayerKind.MODEL
        self.steps = steps if self.judges else 1
        self.spent = Spent()
        """The cost of a player with a trace, known once the player has ended."""
        self._jobs, self._task, self._player, self._warn = jobs, task, str(player.name), warn

    async def judge(self, kernel: Kernel, name: str) -> Judgement:
        return await self._try(kernel, name, None)

    async def build(self, kernel: Kernel, name: str) -> Judgement:
        return await self._try(kernel, name, 0)

    async def _try(self, kernel: Kernel, name: str, rounds: int | None) -> Judgement:
        verdict: asyncio.Future[Judgement] = asyncio.get_running_loop().create_future()
        return await self._jobs.try_out(Try(self._task, self._player, kernel, name, rounds, verdict))

    def hear(self, event: AnyTraceEvent) -> None:
        if isinstance(event, Ended):
            self.spent = event.spent

    def warn(self, text: str) -> None:
        self._warn(f"{self._player} at {self._task.problem.stem}, attempt {self._task.attempt}: {text}")
