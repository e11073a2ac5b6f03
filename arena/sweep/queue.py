"""The queue of a worker: tries of agents first, then what is ready at the problem that a worker has open, then the rest."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from arena.players.entrant import Author, Submission, Task
from arena.runs.judge import Judgement
from arena.sweep.records import Cell


@dataclass(frozen=True)
class KernelJob:
    """A cell of the sweep with a kernel to judge, or with the reason why there is none."""

    cell: Cell
    task: Task
    author: Author
    submission: Submission | None
    """None: of a fixed author, who is asked at the worker."""


@dataclass(frozen=True)
class Try:
    """A kernel that somebody tries while writing; the verdict goes back to the writer."""

    task: Task
    player: str
    source: str
    name: str
    rounds: int | None
    verdict: asyncio.Future[Judgement]


class Jobs:
    """Holds no more than `most` kernels that writers have handed in; kernels at no cost are made when a worker wants one."""

    def __init__(self, fixed: Iterator[KernelJob], most: int) -> None:
        """fixed: kernels that are there already, problem by problem."""
        self._fixed = fixed
        self._next_fixed: KernelJob | None = next(fixed, None)
        self._most = most
        self._tries: deque[Try] = deque()
        self._ready: list[KernelJob] = []
        self._changed = asyncio.Condition()
        self._writing = True

    async def offer(self, entry: KernelJob) -> None:
        """Hands a kernel in; waits while too many wait already."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._ready) < self._most)
            self._ready.append(entry)
            self._changed.notify_all()

    async def try_out(self, job: Try) -> Judgement:
        """Has a kernel judged before anything else, and waits for its verdict."""
        async with self._changed:
            self._tries.append(job)
            self._changed.notify_all()
        return await job.verdict

    async def no_more_writing(self) -> None:
        """Nobody writes any more: workers stop when nothing is left."""
        async with self._changed:
            self._writing = False
            self._changed.notify_all()

    async def take(self, slug: str) -> KernelJob | Try | None:
        """The next job for a worker that has this problem open; None when there will be none."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: bool(self._tries or self._ready or self._next_fixed) or not self._writing
            )
            job = self._choose(slug)
            self._changed.notify_all()
            return job

    def _choose(self, slug: str) -> KernelJob | Try | None:
        while self._tries:
            if not (job := self._tries.popleft()).verdict.done():  # else its writer is gone
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
        """A kernel at no cost comes first: it needs no other problem opened, or nobody waits for room."""
        if self._next_fixed is None:
            return False
        return self._next_fixed.cell.slug == slug or len(self._ready) < self._most


class WorkerAccess:
    """Implements `arena.players.entrant.KernelAccess`: an author's tries wait for a worker like everything else, ahead of it."""

    def __init__(self, jobs: Jobs, task: Task, player: str) -> None:
        self._jobs, self._task, self._player = jobs, task, player

    async def judge(self, source: str, name: str) -> Judgement:
        return await self._try(source, name, None)

    async def build(self, source: str, name: str) -> Judgement:
        return await self._try(source, name, 0)

    async def _try(self, source: str, name: str, rounds: int | None) -> Judgement:
        verdict: asyncio.Future[Judgement] = asyncio.get_running_loop().create_future()
        return await self._jobs.try_out(Try(self._task, self._player, source, name, rounds, verdict))
