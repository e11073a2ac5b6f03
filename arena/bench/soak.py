"""Many runs of every kind in one session of one engine: nothing is left of any of them, and the last is as quick as the first."""

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from arena.bench.figure import Figure
from arena.bench.soak_kernels import SOAK_KERNELS, SoakKernel
from arena.engine import Engine
from arena.errors import MachineError
from arena.jail_policy import is_jail
from arena.paths import Paths
from arena.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.events import AnyEvent, Finished, Ready, WorldChanged

REPETITIONS = 500
ROUNDS = 2
PATIENCE = "0.5"
"""Of the usual deadlines: a hanging kernel is given up after 5 s, and a busy machine still gets a batch done."""
GIVE_UP_S = 180.0
MIB = 1 << 20

EXACT = (
    "processes below the engine",
    "descriptors of the engine",
    "descriptors of the referee",
    "files in temporary folders",
    "files in /dev/shm",
    "files of the arena but journals",
)
"""What must not grow at all."""
RESIDENT = {"resident memory of the engine": 24.0, "resident memory of the referee": 8.0}
"""MiB that these may grow by: caches and the allocator's own fragments, whatever the number of runs."""
SLOWER = 1.5
"""The median good run of the last tenth against the first's; the machine's own speed wanders by some of this."""

Sample = dict[str, float]


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """Problem 1, tiny, two CPU ranks: what is there after every run, first tenth against last.

    Raises:
        MachineError: the referee ended, or said nothing for minutes; or there is no jail.
    """
    count = repetitions or REPETITIONS
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder, _surroundings(Path(folder)) as temporary:
        own = Paths(Path(folder) / "config", Path(folder) / "data", Path(folder) / "state")
        soak = _Soak(own, temporary)
        await soak.run(count)
    return figures(soak.samples, soak.good_seconds, soak.unexpected)


@contextmanager
def _surroundings(folder: Path) -> Iterator[Path]:
    """A folder for temporary files that nobody else uses, and short deadlines, for the referee that starts meanwhile."""
    temporary = folder / "tmp"
    temporary.mkdir()
    before = {name: os.environ.get(name) for name in ("TMPDIR", "PKB_DEADLINE_SCALE")}
    os.environ |= {"TMPDIR": str(temporary), "PKB_DEADLINE_SCALE": PATIENCE}
    try:
        yield temporary
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Soak:
    def __init__(self, paths: Paths, temporary: Path) -> None:
        self.paths = paths
        self.temporary = temporary
        self.referee = 0
        self.spare_ready = asyncio.Event()
        self.samples: list[Sample] = []
        self.good_seconds: list[float] = []
        self.unexpected: Counter[str] = Counter()

    def listen(self, event: AnyEvent) -> None:
        if isinstance(event, Ready):
            if self.referee:
                self.unexpected["another referee"] += 1
            self.referee = event.pid
        elif isinstance(event, Finished):
            self.spare_ready.clear()  # the one that was ready has just been used
        elif isinstance(event, WorldChanged) and event.role == "spare" and event.state == "ready":
            self.spare_ready.set()

    async def run(self, count: int) -> None:
        order = [SOAK_KERNELS[number % len(SOAK_KERNELS)] for number in range(count)]
        random.Random(count).shuffle(order)
        async with Engine(self.paths) as engine:
            engine.subscribe(self.listen)
            await engine.start()
            if not is_jail(engine.jail):
                raise MachineError(
                    "without walls kernels leave what they like, and that is all that this would count",
                    "`pkb-arena doctor` says what the jail needs",
                )
            for kernel in SOAK_KERNELS:  # what is loaded once is not a leak
                await self.judge(engine, kernel)
            for kernel in order:
                seconds = await self.judge(engine, kernel)
                if kernel.name == "good":
                    self.good_seconds.append(seconds)
                self.samples.append(self.sample())

    async def judge(self, engine: Engine, kernel: SoakKernel) -> float:
        """One run, and then until the next spare is ready: every sample is taken in the same state. Seconds to the verdict."""
        problem = load_catalogue().find("1")
        setting = choose_setting(problem, Choice(preset="tiny", world=2, device="cpu"), Settings())
        request = RunRequest(
            problem=problem,
            setting=setting,
            kernel_name=f"{kernel.name}.py",
            source=kernel.source,
            rounds=ROUNDS,
        )
        started = time.monotonic()
        try:
            async with asyncio.timeout(GIVE_UP_S):
                end = await engine.wait(await engine.run(request))
                seconds = time.monotonic() - started
                got = end.result.verdict if isinstance(end, Finished) else type(end).__name__
                if got != kernel.verdict:
                    self.unexpected[f"{kernel.name}: {got}"] += 1
                await self.spare_ready.wait()
        except TimeoutError:
            raise MachineError(f"nothing happened for {GIVE_UP_S:.0f} s", "run `pkb-arena doctor`") from None
        return seconds

    def sample(self) -> Sample:
        """What a leak would show in, now."""
        engine = psutil.Process()
        referee = psutil.Process(self.referee)
        own = [file for file in _files(self.paths.data.parent) if self.temporary not in file.parents]
        journals = sum(file.parent == self.paths.runs for file in own)
        return {
            "processes below the engine": len(engine.children(recursive=True)),
            "descriptors of the engine": engine.num_fds(),
            "descriptors of the referee": referee.num_fds(),
            "files in temporary folders": len(_files(self.temporary)),
            "files in /dev/shm": len(_files(Path("/dev/shm"))),
            "files of the arena but journals": len(own) - journals,
            "resident memory of the engine": engine.memory_info().rss / MIB,
            "resident memory of the referee": referee.memory_info().rss / MIB,
        }


def _files(folder: Path) -> list[Path]:
    return [Path(root) / name for root, folders, files in os.walk(folder) for name in (*folders, *files)]


def figures(samples: list[Sample], good_seconds: list[float], unexpected: Counter[str]) -> list[Figure]:
    """The leak table: by how much the median of the last tenth is above the first's, and the slope over all runs."""
    limits = dict.fromkeys(EXACT, 0.0) | RESIDENT
    table = []
    for name, limit in limits.items():
        values = [sample[name] for sample in samples]
        before, after = _tenths(values)
        detail = f"{before:.4g} before, {after:.4g} after; {100 * _slope(values):+.3f} per 100 runs"
        unit = "MiB" if name in RESIDENT else ""
        table.append(Figure(f"more {name}", after - before, unit, limit, detail, fault=True))
    surprises = ", ".join(f"{what} ({times})" for what, times in unexpected.items())
    wrong = sum(unexpected.values())
    table.append(Figure("runs not as expected", wrong, "", 0, f"of {len(samples)}; {surprises}", fault=True))
    if good_seconds:
        first, last = _tenths(good_seconds)
        detail = f"{first:.3g} s before, {last:.3g} s after, of {len(good_seconds)}"
        table.append(Figure("good runs slower", last / first, "times", SLOWER, detail))
    return table


def _tenths(values: list[float]) -> tuple[float, float]:
    tenth = max(len(values) // 10, 1)
    return statistics.median(values[:tenth]), statistics.median(values[-tenth:])


def _slope(values: list[float]) -> float:
    if len(values) < 2:
        return 0.0
    return statistics.linear_regression(range(len(values)), values).slope
