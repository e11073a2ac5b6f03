"""Measurement: time from a save of a kernel file to its verdicts, through the watcher, the engine and real ranks."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from arena.errors import MachineError, UsageError
from arena.paths import paths_in, write_atomically
from arena.records.run_record import view
from arena.runs.engine import Engine
from arena.runs.judge import RunRequest
from arena.setting_choice import Choice
from arena.workspace.kernels import content_hash
from arena.workspace.watcher import KernelWatcher
from benchmarks.figure import Figure
from benchmarks.rows import request_of
from problems.catalogue import load_catalogue
from sandbox.protocol.events import AnyEvent, Checked, Finished, Seconds, WorldChanged
from sandbox.protocol.verdict import Verdict

REPETITIONS = 20
PAUSE_S = 1.5
"""Seconds between a verdict and the next save. Users type no faster, and the next spare world starts meanwhile."""
NEXT_SPARE_S = 0.3
"""Seconds without an event after which no further spare world will start."""
GIVE_UP_S = 120.0


async def measure(repetitions: int | None) -> list[Figure]:
    """Measures problem 13, tiny, on two CPU ranks: median times from a save to both verdicts.

    Timing the baseline takes longest, because it is neither faster nor slower than itself; the house kernel is clearly
    faster.

    Raises:
        MachineError: a run did not pass, or no verdict arrived.
    """
    count, limits = repetitions or REPETITIONS, (0.5, 1.5)
    same = on_cpu_ranks()
    assert same.problem.house_source is not None
    faster = view(RunRequest, same, source=same.problem.house_source)
    return [*await saves(same, count, limits), *await saves(faster, count, limits, ", house")]


async def saves(request: RunRequest, count: int, limits: tuple[float, float], which: str = "") -> list[Figure]:
    """Saves a kernel repeatedly; returns the median seconds to the correctness verdict and to the full one.

    limits: of both. which: the end of the figures' names.
    """
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        async with saved_kernel(Path(folder), request) as kernel:
            times = [await kernel.save() for _ in range(count)]
            phases = kernel.phases()
    checked, finished = zip(*times, strict=True)
    slowest = f"median of {count}, fastest {{:.2f}} s, slowest {{:.2f}} s"
    figures = [
        Figure(name + which, statistics.median(times), "s", limit, slowest.format(min(times), max(times)))
        for name, limit, times in (
            ("save to correctness verdict", limits[0], checked),
            ("save to full verdict", limits[1], finished),
        )
    ]
    return [*figures, *(Figure(f"  of it {name}{which}", value, "s") for name, value in phases.items())]


def on_cpu_ranks() -> RunRequest:
    """The baseline of problem 13, saved as a kernel."""
    source = load_catalogue().find("13").baseline_source
    return request_of("13", Choice(preset="tiny", world=2, device="cpu"), "kernel.py", source)


class SavedKernel:
    """A kernel file that is watched and judged on every save."""

    def __init__(self, engine: Engine, path: Path, request: RunRequest) -> None:
        self.jail = engine.jail
        self._path = path
        self._saves = 0
        self._events: asyncio.Queue[tuple[float, AnyEvent]] = asyncio.Queue()
        self._engine = engine
        self._request = request
        self._seconds: list[Seconds] = []

    async def watch(self, watcher: KernelWatcher) -> None:
        """Judges every save."""
        async for save in watcher:
            if isinstance(save, UsageError):
                raise save
            await self._engine.judge(view(RunRequest, self._request, source=save.text))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator["SavedKernel"]:
        """Writes the file and makes a first run, as opening the problem in the app does; then judges every save."""
        unsubscribe = self._engine.subscribe(lambda event: self._events.put_nowait((time.monotonic(), event)))
        self._path.write_text(self._request.source)
        watcher = KernelWatcher(self._path, content_hash(self._request.source))
        await self._engine.judge(self._request)
        await self._verdicts()
        self._seconds.clear()  # the first run was not a save
        self.jail = self._engine.jail
        judging = asyncio.create_task(self.watch(watcher))
        try:
            yield self
        finally:
            unsubscribe()
            watcher.stop()
            judging.cancel()

    async def save(self) -> tuple[float, float]:
        """Saves a new revision; returns the seconds to the correctness verdict, and to the full one.

        Raises:
            MachineError: it did not pass, or no verdict arrived.
        """
        await self.quiet()
        self._saves += 1
        saved = time.monotonic()
        write_atomically(self._path, f"{self._request.source}\n# revision {self._saves}\n".encode())
        first, last = await self._verdicts()
        return first - saved, last - saved

    def phases(self) -> dict[str, float]:
        """Median seconds of each phase of the saves so far."""
        names = ("load", "compile", "check", "time")
        return {name: statistics.median(getattr(each, name) for each in self._seconds) for name in names}

    async def quiet(self) -> None:
        """Waits for the pause between saves, then until all spare worlds are ready. They start one after another."""
        await asyncio.sleep(PAUSE_S)
        starting = False
        while True:
            try:
                async with asyncio.timeout(GIVE_UP_S if starting else NEXT_SPARE_S):
                    _, event = await self._events.get()
            except TimeoutError:
                if starting:
                    raise MachineError(f"no spare world within {GIVE_UP_S:.0f} s") from None
                return
            if isinstance(event, WorldChanged) and event.role == "spare":
                starting = event.state == "starting"

    async def _verdicts(self) -> tuple[float, float]:
        """The times at which the correctness verdict and the full verdict of the next run arrived."""
        first = None
        try:
            async with asyncio.timeout(GIVE_UP_S):
                while True:
                    at, event = await self._events.get()
                    if isinstance(event, Checked):
                        first = at
                    elif isinstance(event, Finished):
                        if event.result.verdict is not Verdict.PASS or first is None:
                            raise MachineError(f"the kernel did not pass: {event.result.detail}")
                        self._seconds.append(event.result.seconds)
                        return first, at
        except TimeoutError:
            raise MachineError(f"no verdict within {GIVE_UP_S:.0f} s", "run `pkb-arena doctor`") from None


@asynccontextmanager
async def saved_kernel(
    folder: Path, request: RunRequest, environment: Mapping[str, str] | None = None
) -> AsyncIterator[SavedKernel]:
    """Yields a watched kernel with its own engine, which stores everything in `folder`, not in the user's history.

    environment: variables of that engine's referee.
    """
    folder.mkdir(exist_ok=True)
    async with (
        Engine(paths_in(folder), environment=environment) as engine,
        SavedKernel(engine, folder / request.kernel_name, request).watched() as kernel,
    ):
        yield kernel
