"""From a real save of a kernel file to its verdicts, through the watcher, the engine and real ranks."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from arena.atomic_file import write_atomically
from arena.bench.figure import Figure
from arena.engine import Engine, RunRequest
from arena.errors import MachineError
from arena.paths import Paths
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.watcher import KernelWatcher
from arena.workspace import content_hash
from problems.catalogue import load_catalogue
from sandbox.events import AnyEvent, Checked, Finished, WorldChanged
from sandbox.verdict import Verdict

REPETITIONS = 20
PAUSE_S = 1.5
"""Between a verdict and the next save: nobody types faster, and the next spare world gets ready meanwhile."""
GIVE_UP_S = 120.0


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """Problem 13, tiny, two CPU ranks: save to correctness verdict, save to full verdict, medians.

    Raises:
        MachineError: a run did not pass, or nothing came.
    """
    count = repetitions or REPETITIONS
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        own = Paths(
            Path(folder) / "config", Path(folder) / "data", Path(folder) / "state"
        )  # not the user's history
        async with Engine(own) as engine:
            checked, finished = await _saves(engine, Path(folder) / "kernel.py", count)
    slowest = f"median of {count}, fastest {{:.2f}} s, slowest {{:.2f}} s"
    return [
        Figure(name, statistics.median(times), "s", limit, slowest.format(min(times), max(times)))
        for name, limit, times in (
            ("save to correctness verdict", 0.5, checked),
            ("save to full verdict", 1.5, finished),
        )
    ]


async def _saves(engine: Engine, path: Path, count: int) -> tuple[list[float], list[float]]:
    problem = load_catalogue().find("13")
    setting = choose_setting(problem, Choice(preset="tiny", world=2, device="cpu"), Settings())
    source = problem.baseline_source
    path.write_text(source)
    events: asyncio.Queue[tuple[float, AnyEvent]] = asyncio.Queue()
    engine.subscribe(lambda event: events.put_nowait((time.monotonic(), event)))
    request = RunRequest(problem=problem, setting=setting, kernel_name=path.name, source=source)
    watcher = KernelWatcher(path, content_hash(source))

    async def judge_saves() -> None:
        async for kernel in watcher:
            await engine.run(
                RunRequest(problem=problem, setting=setting, kernel_name=path.name, source=kernel.text)
            )

    await engine.run(request)  # warms the baseline world, as opening the problem in the app does
    await _verdicts(events)
    judging = asyncio.create_task(judge_saves())
    checked, finished = [], []
    try:
        for number in range(count):
            await _quiet(events)
            saved = time.monotonic()
            write_atomically(path, f"{source}\n# revision {number}\n".encode())
            first, last = await _verdicts(events)
            checked.append(first - saved)
            finished.append(last - saved)
    finally:
        watcher.stop()
        judging.cancel()
    return checked, finished


async def _quiet(events: "asyncio.Queue[tuple[float, AnyEvent]]") -> None:
    """The pause between saves, and then until the next spare world is ready."""
    await asyncio.sleep(PAUSE_S)
    starting = False
    while not events.empty() or starting:
        async with asyncio.timeout(GIVE_UP_S):
            _, event = await events.get()
        if isinstance(event, WorldChanged) and event.role == "spare":
            starting = event.state == "starting"


async def _verdicts(events: "asyncio.Queue[tuple[float, AnyEvent]]") -> tuple[float, float]:
    """When the correctness verdict and the full verdict of the next run came."""
    first = None
    try:
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                at, event = await events.get()
                if isinstance(event, Checked):
                    first = at
                elif isinstance(event, Finished):
                    if event.result.verdict is not Verdict.PASS or first is None:
                        raise MachineError(f"the baseline did not pass: {event.result.detail}")
                    return first, at
    except TimeoutError:
        raise MachineError(f"no verdict within {GIVE_UP_S:.0f} s", "run `pkb-arena doctor`") from None
