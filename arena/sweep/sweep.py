"""The driver of a sweep: players write, workers judge, and every result is journalled before the next.

Workers are local or on other machines. The journal has all results at any time.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

import msgspec

from arena.errors import ArenaError, KernelUnreadable, PlayerFailed, RunRefused, UsageError
from arena.machine.facts import require_jail
from arena.models.budget import BudgetPool, Spent
from arena.players.player import Player, PlayerKind, Submission, Task
from arena.players.program.watch import LIMIT
from arena.records.code_hash import code_hash
from arena.records.run_record import fields_of, view
from arena.runs.judge import SWEEP, RunRequest
from arena.runs.other_sizes import with_other_sizes
from arena.setting_choice import choose_setting
from arena.settings import Settings
from arena.sweep import records
from arena.sweep.journal import SweepJournal
from arena.sweep.queue import Jobs, KernelJob, Try, Worker, WorkerAccess, WorkerLost, judge_at
from arena.sweep.records import Cell, CellResult, SweepPlan
from arena.workspace.kernels import content_hash
from arena.workspace.named_kernels import BASELINE
from problems.specification import Problem
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict


@dataclass
class Listener:
    """Callbacks of a sweep. They are called in the event loop and must not block."""

    judged: Callable[[CellResult], None] = lambda result: None
    left_out: Callable[[Problem, str, str], None] = lambda problem, player, why: None
    """The player cannot play this problem: all its attempts are left out."""
    said: Callable[[str], None] = lambda text: None
    """A message for the user."""


@dataclass
class SweepProgress:
    """The counts of a sweep so far."""

    total: int = 0
    """Cells of the plan, without those left out."""
    done: int = 0
    """Cells with a result, of this session or an earlier one."""
    judged: int = 0
    """Cells judged in this session."""
    writing: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    """Verdicts of this session, with their numbers."""
    unanswered: int = 0
    """Cells whose player gave no answer."""
    left_out: str = ""
    """Why the newest left-out player cannot play its problem; empty if none was left out."""
    stopped: str = ""
    """Why the sweep ended early; empty if it did not."""

    @property
    def whole(self) -> bool:
        """Whether every cell has a result."""
        return self.done >= self.total


async def _finish(recording: Coroutine[None, None, None]) -> None:
    """Finishes the recording, also if this task is cancelled, because the result is paid for."""
    task = asyncio.ensure_future(recording)
    try:
        await asyncio.shield(task)
    finally:
        await task


LOST = 3
"""Harness errors in a row after which a worker is retired, if the baseline gets one, too."""
FAILURES = 3
"""Failed answers of one player in a row after which it is not asked again."""


@dataclass(eq=False)
class Sweep:
    """One session of a sweep. Call `run` once."""

    plan: SweepPlan
    problems: Sequence[Problem]
    players: Sequence[Player]
    workers: Sequence[Worker]
    """Started workers. The sweep does not close them."""
    journal: SweepJournal
    settings: Settings
    pool: BudgetPool
    _: KW_ONLY
    ahead: int = 4
    """Number of answers written at the same time, and of submissions that may wait for a worker."""
    unsafe: bool = False
    """Whether kernels of models and agents may run without a jail."""
    listener: Listener = field(default_factory=Listener)

    def __post_init__(self) -> None:
        total = len(self.problems) * sum(map(self._attempts, self.players))
        self.progress = SweepProgress(total)
        self._machines = {worker.machine.digest for worker in self.workers}
        """Their fingerprints. A result from any of them counts."""
        self._left_out: set[tuple[str, str]] = set()
        """Problems and players."""
        self._failures: Counter[str] = Counter()
        self._harness_errors: Counter[str] = Counter()
        """Harness errors in a row, by worker."""
        self._active_workers = len(self.workers)
        self._recording = asyncio.Lock()
        self._jobs = Jobs(self._cells(fixed=True), self.ahead)  # last, because it draws the first cell at once

    async def run(self) -> SweepProgress:
        """Runs until every cell has a result or nothing more can be done. Cancelling it ends all requests and runs.

        Raises:
            MachineError: a player's kernels would run without a jail, or the journal, a folder or the devices cannot be used.
        """
        if any(player.name.kind in (PlayerKind.MODEL, PlayerKind.AGENT) for player in self.players):
            for worker in self.workers:
                require_jail(worker.judge.jail, self.unsafe)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write_all())
                for worker in self.workers:
                    group.create_task(self._work(worker))
        except BaseExceptionGroup as group:
            _raise_all_but_stop(group)
        if not self.progress.whole and not self.progress.stopped:
            self.progress.stopped = self.pool.reached
        return self.progress

    # --- cells -----------------------------------------------------------------------------------------------

    def _attempts(self, player: Player) -> int:
        return 1 if player.fixed else self.plan.attempts

    def _cells(self, fixed: bool) -> Iterator[KernelJob]:
        """Yields all cells of fixed players, or of players who write, problem by problem."""
        for problem in self.problems:
            players = [player for player in self.players if player.fixed is fixed]
            if not players:
                return
            try:
                setting = choose_setting(problem, self.plan, self.settings)
            except UsageError as error:
                for player in players:
                    self._leave_out(problem, player, error.message)
                continue
            version = records.version_of(problem)
            for player in players:
                for attempt in range(1, self._attempts(player) + 1):
                    cell = records.Cell(
                        slug=problem.slug,
                        setting=msgspec.structs.replace(setting, problem_dir=""),
                        player=str(player.name),
                        attempt=attempt,
                        catalogue=version,
                    )
                    yield KernelJob(cell, Task(problem, setting, attempt), player, None)

    def _leave_out(self, problem: Problem, player: Player, why: str) -> None:
        """Leaves out all attempts of a player at a problem."""
        name = str(player.name)
        if (problem.slug, name) not in self._left_out:
            self._left_out.add((problem.slug, name))
            self.progress.total -= self._attempts(player)
            self.progress.left_out = why
            self.listener.left_out(problem, name, why)

    def _skip_done(self, cell: Cell, sha256: str) -> bool:
        """Whether the journal has a result of this kernel. If so, counts the cell as done."""
        done = any(self.journal.is_done(cell, sha256, machine) for machine in self._machines)
        self.progress.done += done
        return done

    # --- journal ---------------------------------------------------------------------------------------------

    async def _unanswered(self, cell: Cell, why: str, spent: Spent) -> None:
        """Leaves the cell without a result, and journals what was spent on it."""
        self.progress.unanswered += 1
        if spent.tokens:
            await _finish(self._append(records.Unanswered(at=time.time(), cell=cell, why=why, spent=spent)))

    async def _judged(self, result: CellResult) -> None:
        """Journals and counts the result of a run."""
        await self._append(result)
        self.progress.judged += 1
        self.progress.done += result.final
        self.progress.verdicts[result.verdict] += 1
        self.listener.judged(result)
        self._harness_errors[result.worker] = 0 if result.final else self._harness_errors[result.worker] + 1

    async def _append(self, line: records.AnyLine) -> None:
        async with self._recording:
            await asyncio.to_thread(self.journal.append, line)

    # --- writing ---------------------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        entries = self._cells(fixed=False)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.ahead):
                group.create_task(self._write_some(entries))
        await self._jobs.no_more_writing()

    async def _write_some(self, entries: Iterator[KernelJob]) -> None:
        """Asks players for an answer, cell after cell. Several of these tasks share the cells."""
        for entry in entries:
            cell = entry.cell
            written = await asyncio.to_thread(self.journal.written, cell.digest)
            if written is None:
                if (cell.slug, cell.player) in self._left_out:
                    continue
                submission = await self._ask(entry)
            else:
                submission = Submission(**fields_of(written, "kernel file_name reason spent trace_id"))
            if submission is None:
                continue
            if not self._skip_done(cell, _hash(submission, entry.task.problem)):
                await self._jobs.offer(KernelJob(cell, entry.task, entry.player, submission))

    async def _ask(self, entry: KernelJob) -> Submission | None:
        """Asks for the player's answer and journals it. Returns None if there is none."""
        player = entry.cell.player
        if self.pool.reached or self._failures[player] >= FAILURES:
            self.progress.unanswered += 1
            return None
        self.progress.writing += 1
        access = self._access(entry)
        try:
            submission = await entry.player.play(entry.task, access)
        except PlayerFailed as error:
            self._failures[player] += 1
            await self._unanswered(entry.cell, error.message, getattr(error, "spent", Spent()))
            more = self._failures[player] >= FAILURES
            self.listener.said(
                f"{player} at {entry.task.problem.stem}, attempt {entry.cell.attempt}: {error.message}"
                + (f"; {player} is asked no more" if more else "")
            )
            return None
        except UsageError as error:
            self._leave_out(entry.task.problem, entry.player, error.message)
            return None
        except (asyncio.CancelledError, ArenaError) as error:
            await self._unanswered(entry.cell, str(error) or "cancelled", access.spent)
            raise
        finally:
            self.progress.writing -= 1
        self._failures[player] = 0
        if submission.ended.startswith((LIMIT, "failed")):
            self.listener.said(f"{player} was ended: {submission.ended}")
        if submission.reason == "budget":
            await self._unanswered(entry.cell, submission.reason, submission.spent)
            return None
        await _finish(self._append(view(records.Written, submission, submission.kernel, entry, at=time.time())))
        return submission

    def _access(self, entry: KernelJob) -> WorkerAccess:
        return WorkerAccess(self._jobs, entry.task, entry.player, self.plan.steps, self.listener.said)

    # --- judging ---------------------------------------------------------------------------------------------

    async def _work(self, worker: Worker) -> None:
        """Runs the jobs of one worker, one after another."""
        slug = ""
        while (job := await self._jobs.take(slug)) is not None:
            slug = job.task.problem.slug
            if isinstance(job, Try):
                await self._try_out(worker, job)
            else:
                await self._judge(worker, job)
            if self._harness_errors[worker.name] >= LOST and not await self._goes_on(worker, job.task):
                return

    async def _goes_on(self, worker: Worker, task: Task) -> bool:
        """Whether a worker that met harness errors judges the baseline. If not, it is retired; without any, the sweep ends."""
        judgement, _ = await judge_at(worker, self._request(task, BASELINE, Kernel(""), BASELINE, rounds=1))
        if judgement.result.verdict is not Verdict.HARNESS_ERROR:
            self._harness_errors[worker.name] = 0
            return True
        self._active_workers -= 1
        why = f"{LOST} harness errors in a row at {worker.name}, the last one: {judgement.result.detail}"
        if not self._active_workers:
            self.progress.stopped = why
            raise _Stop
        self.listener.said(f"{why}; it judges no more")
        return False

    async def _try_out(self, worker: Worker, job: Try) -> None:
        request = self._request(job.task, job.player, job.kernel, job.name, job.rounds)
        try:
            judgement, _ = await judge_at(worker, request)
        except ArenaError as error:
            if not job.judgement.done():
                job.judgement.set_exception(error)
            if isinstance(error, WorkerLost):
                raise
            return
        if not job.judgement.done():
            job.judgement.set_result(judgement)

    async def _judge(self, worker: Worker, entry: KernelJob) -> None:
        submission, problem = entry.submission, entry.task.problem
        if submission is None:
            try:
                submission = await entry.player.play(entry.task, self._access(entry))
            except UsageError as error:
                self._leave_out(problem, entry.player, error.message)
                return
            except KernelUnreadable as error:
                await self._unanswered(entry.cell, error.message, Spent())
                self.listener.said(f"{problem.stem} {entry.cell.player}: {error.message}; {error.advice}")
                return
            if self._skip_done(entry.cell, _hash(submission, problem)):
                return
        started = time.monotonic()
        verdict, detail, report, tries = records.NO_KERNEL, submission.reason, None, 1
        if (kernel := submission.kernel) is not None:
            player = str(entry.player.name)
            request = self._request(entry.task, player, kernel, submission.file_name)
            try:
                judgement, tries = await judge_at(worker, request)
            except RunRefused as refused:
                verdict, detail = records.REFUSED, refused.message
            else:
                report = judgement.report.shortened
                verdict, detail = report.verdict.value, report.detail
                if report.verdict is Verdict.PASS and self.plan.other_sizes and player != BASELINE:
                    report = await with_other_sizes(worker.judge, request, report)
        sha256 = _hash(submission, problem)
        result = view(
            records.CellResult, problem, submission, entry,
            at=time.time(),
            key=entry.cell.key(sha256, worker.machine.digest),
            problem_id=problem.id,
            sha256=sha256,
            code=code_hash(kernel) if kernel is not None else "",
            machine=worker.machine.digest,
            worker=worker.name,
            verdict=verdict,
            detail=detail,
            report=report,
            seconds=round(time.monotonic() - started, 3),
            tries=tries,
        )  # fmt: skip
        await _finish(self._judged(result))

    def _request(self, task: Task, player: str, kernel: Kernel, name: str, rounds: int | None = None) -> RunRequest:
        seconds = self.plan.seconds
        return view(
            RunRequest, kernel,
            problem=task.problem,
            setting=task.setting,
            kernel_name=name,
            player="you" if player == BASELINE else player,
            rounds=self.plan.rounds if rounds is None else rounds,
            budget_s=self.settings.seconds if seconds is None else seconds,
            urgency=SWEEP,
        )  # fmt: skip


class _Stop(Exception):
    """Ends the sweep; its progress has the reason."""


def _hash(submission: Submission, problem: Problem) -> str:
    """Returns the SHA-256 of the kernel; empty without one."""
    kernel = submission.kernel
    if kernel is None:
        return ""
    own = not kernel.source and submission.file_name == BASELINE
    return content_hash(problem.baseline_source) if own else kernel.sha256


def _raise_all_but_stop(group: BaseExceptionGroup[BaseException]) -> None:
    """Raises the errors of a group except `_Stop`: the first one alone if it is an ArenaError, else all as a group."""
    _, others = group.split(_Stop)
    if others is None:
        return
    error: BaseException = others
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ArenaError):
        raise error from None
    raise others
