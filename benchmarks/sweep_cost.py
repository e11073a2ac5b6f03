"""Measurement: what a sweep costs beside judging, and how that grows with the number of stored results.

The judge answers at once. Everything else is as in any sweep: answers and results are stored one by one, with the run's
own journal, the index of results and the scores.
"""

import asyncio
import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from arena.board.gathering import gather
from arena.machine.facts import this_machine
from arena.models.budget import BudgetPool
from arena.paths import Paths, make_folder, paths_in
from arena.players.player import KernelAccess, Player, PlayerKind, PlayerName, Submission, Task
from arena.records.index import Store
from arena.records.json_lines import Journal
from arena.records.run_record import record_of
from arena.runs.judge import RunInProgress, RunRequest, header_of
from arena.settings import Settings
from arena.sweep.journal import SweepJournal, begin_session
from arena.sweep.queue import Worker
from arena.sweep.records import SweepPlan
from arena.sweep.sweep import Listener, Sweep
from benchmarks.figure import Figure
from benchmarks.soak import resident_mib
from problems.catalogue import load_catalogue
from sandbox.protocol.events import Finished, Interval, Microseconds, Result, Roofline, Seconds, Setting, Speedup
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.verdict import Verdict

STORED = (100, 1000, 10_000)
KERNEL_BYTES = 3000
HOSTS, RUNS_EACH, RUN_S = 100, 10, 2.0
"""The simulated cluster: hosts, runs of each, and seconds of a run."""
MOST_S = 0.05
"""Limit for the driver's time for one result, in seconds."""
MOST_GROWTH_MIB = 24.0
"""Limit for the growth of the driver's memory from the first 100 results to the last. It stores keys of results, and
offsets of answers."""

T = TypeVar("T")


async def measure(repetitions: int | None) -> list[Figure]:
    """Measures time and memory per result at 100, 1000 and 10 000 stored results, or at `repetitions` alone."""
    stored = (repetitions,) if repetitions is not None else STORED
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        figures = await _play(paths_in(Path(folder)), stored)
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        return [*figures, await _hosts(paths_in(Path(folder)))]


async def _hosts(paths: Paths) -> Figure:
    """Simulates hosts whose every run takes `RUN_S`, with one driver: the share of time that they wait for it."""
    began = time.monotonic()
    judged = await _swept(paths, HOSTS * RUNS_EACH, InstantJudge(paths, RUN_S), hosts=HOSTS)
    took = time.monotonic() - began
    each = judged / HOSTS
    idle = 100 * (1 - math.ceil(each) * RUN_S / took)  # in the last round not every host has a run
    told = f"{each:.1f} runs each, {judged / took:.0f} results a second"
    return Figure(f"time that {HOSTS} hosts with runs of {RUN_S:g} s wait for the driver", idle, "%", detail=told)


async def _play(paths: Paths, stored: tuple[int, ...]) -> list[Figure]:
    marks: list[tuple[int, float, float]] = [(0, time.monotonic(), 0.0)]

    def mark(judged: int) -> None:
        if judged in stored:
            marks.append((judged, time.monotonic(), resident_mib(os.getpid())))

    await _swept(paths, stored[-1], InstantJudge(paths), mark)
    figures = []
    for (before, began, _), (count, ended, memory) in itertools.pairwise(marks):
        each = (ended - began) / (count - before)
        figures.append(Figure(f"a result, up to {count} stored", 1000 * each, "ms", 1000 * MOST_S))
        figures.append(Figure(f"memory of the driver at {count}", memory, "MiB"))
    growth = marks[-1][2] - marks[1][2]
    if len(stored) > 1:
        figures.append(Figure("memory that the driver grew by", growth, "MiB", MOST_GROWTH_MIB))
    figures += await asyncio.to_thread(_reading, paths, marks[-1][0])
    return figures


async def _swept(
    paths: Paths, results: int, judge: "InstantJudge", mark: Callable[[int], None] = lambda judged: None, hosts: int = 1
) -> int:
    """Plays a sweep of at least so many results. mark: gets their number after each. Returns how many there are."""
    problems = load_catalogue().problems
    attempts = -(-results // len(problems))
    plan = SweepPlan(players=["agent:bench"], problems=[problem.slug for problem in problems], attempts=attempts)
    journal = SweepJournal(paths.sweeps / "bench.jsonl", "bench")
    workers = [Worker(f"host {number}", judge, this_machine("cpu")) for number in range(hosts)]
    begin_session(journal, plan, workers)
    settings, listener = Settings(device="cpu", preset="tiny"), Listener(judged=lambda _: mark(sweep.progress.judged))
    sweep = Sweep(
        plan, problems, [_Writer()], workers, journal, settings, BudgetPool(None),
        unsafe=True, listener=listener, ahead=max(hosts, Sweep.ahead),
    )  # fmt: skip
    try:
        await sweep.run()
    finally:
        journal.close()
        judge.close()
    return sweep.progress.judged


def _reading(paths: Paths, count: int) -> list[Figure]:
    """The times to continue a sweep and to show a board, and the journal's size per result."""
    path = paths.sweeps / "bench.jsonl"
    seconds, journal = _timed(lambda: SweepJournal(path, "bench"))
    journal.close()
    board_s, _ = _timed(lambda: gather(paths, load_catalogue()))
    size = path.stat().st_size
    return [
        Figure(f"going on after {count} results", seconds, "s"),
        Figure(f"the board of {count} results", board_s, "s"),
        Figure("journal for a result", size / 1024 / count, "KiB"),
    ]


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.monotonic()
    done = work()
    return time.monotonic() - began, done


class _Writer(Player):
    """Submits a different text for every attempt, at once and at no cost."""

    name = PlayerName(PlayerKind.AGENT, "bench")

    async def play(self, task: Task, access: KernelAccess) -> Submission:
        return Submission(Kernel(f"# {task.problem.slug} {task.attempt}\n".ljust(KERNEL_BYTES, "#")))


class InstantJudge:
    """A judge that always returns PASS, for any number of workers.

    It stores a run's journal and index as the engine does.
    """

    jail = "bench"

    def __init__(self, paths: Paths, seconds: float = 0.0) -> None:
        """seconds: duration of a run, without any work."""
        self._paths = paths
        self._seconds = seconds
        self._store = Store(paths.database, paths.runs)
        make_folder(paths.runs)

    async def start(self, setting: Setting | None = None) -> None:
        """Does nothing."""

    async def judge(self, request: RunRequest) -> RunInProgress:
        """Returns a run that is over."""
        header = header_of(request)
        await asyncio.sleep(self._seconds)
        await asyncio.to_thread(self._store.record, record_of(header, _RESULT))
        journal = Journal(self._paths.runs / f"{header.run_id}.jsonl", header, lambda error: None)
        run = RunInProgress(header, journal, RunInProgress.end)  # never cancelled: it has ended
        run.finish(Finished(run_id=header.run_id, sha256=header.sha256, result=_RESULT))
        return run

    def close(self) -> None:
        """Closes the index."""
        self._store.close()


_RESULT = Result(
    verdict=Verdict.PASS,
    detail="faster",
    failure=None,
    paper_rule="match",
    error=None,
    speedup=Speedup(call=Interval(1.5, 1.4, 1.6), device=None),
    baseline_us=Microseconds(call=150.0, device=None),
    contender_us=Microseconds(call=100.0, device=None),
    roofline=Roofline(bound_us=10.0, percent=10.0, limiter="link"),
    seconds=Seconds(),
    jail="bench",
    sealed=True,
    outcome="faster",
    clock="call",
    told="1.50× faster end-to-end",
    rounds=9,
)
