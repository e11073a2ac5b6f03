"""Measurement: many runs of every kind in one engine. Counts what they leave, and compares the last with the first."""

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from arena.errors import MachineError, RunCancelled, RunRefused
from arena.machine.facts import is_jail
from arena.paths import paths_in
from arena.runs.engine import Engine
from arena.runs.judge import judge_to_end
from arena.setting_choice import Choice
from benchmarks.figure import Figure
from benchmarks.rows import request_of
from sandbox.machine.processes import tree
from sandbox.protocol.events import AnyEvent, Finished, Ready, WorldChanged
from sandbox.protocol.verdict import Verdict
from sandbox.worlds.contenders import SPARES

_ADDS = """
    total = tensor.clone()
    dist.all_reduce(total)
    return total
"""


@dataclass(frozen=True)
class SoakKernel:
    """A kernel and its expected verdict."""

    name: str
    source: str
    verdict: Verdict


SOAK_KERNELS = (
    SoakKernel("good", f"import torch.distributed as dist\n\n\ndef solution(tensor):{_ADDS}", Verdict.PASS),
    SoakKernel("wrong", "def solution(tensor):\n    return tensor.clone()\n", Verdict.WRONG_RESULT),
    SoakKernel(
        "hanging",
        f"import time\nimport torch.distributed as dist\n\n\ndef solution(tensor):\n    time.sleep(3600){_ADDS}",
        Verdict.TIMEOUT,
    ),
    SoakKernel("crashing", "import os\n\n\ndef solution(tensor):\n    os.abort()\n", Verdict.CRASH),
    SoakKernel(
        "flooding", 'def solution(tensor):\n    while True:\n        print("x" * 65536)\n', Verdict.OUTPUT_FLOOD
    ),
    # Children of children that nobody waits for, with files of their own. The end of a run must remove them.
    SoakKernel(
        "forking",
        f"""import os
import tempfile
import time
import torch.distributed as dist

for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            tempfile.mkstemp()
            open(f"/dev/shm/pkb-soak-{{os.getpid()}}", "w").write("x" * 65536)
        time.sleep(3600)
        os._exit(0)


def solution(tensor):{_ADDS}""",
        Verdict.PASS,
    ),
)


REPETITIONS = 500
ROUNDS = 2
PATIENCE = "0.5"
"""Factor of the usual deadlines. A hanging kernel is given up after 5 s, and a busy machine still completes a batch."""
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
"""Quantities that must not grow."""
RESIDENT = {"resident memory of the engine": 24.0, "resident memory of the referee": 8.0}
"""MiB by which these may grow: caches and the allocator's own fragments, whatever the number of runs."""
SLOWER = 1.5
"""Limit for the median time of good runs, last tenth over first tenth. The machine's own speed varies by some of
this."""

Sample = dict[str, float]


async def measure(repetitions: int | None) -> list[Figure]:
    """Runs problem 1, tiny, on two CPU ranks, and compares what is left after each run: first tenth with last.

    Raises:
        MachineError: the referee ended, or sent nothing for minutes; or there is no jail.
    """
    count = repetitions or REPETITIONS
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        soak = _Soak(Path(folder))
        await soak.run(count)
    return figures(soak.samples, soak.good_seconds, soak.unexpected)


class _Soak:
    def __init__(self, folder: Path) -> None:
        self.paths = paths_in(folder)
        self.temporary = folder / "tmp"
        """Only for temporary files of the referee and its worlds."""
        self.temporary.mkdir()
        self.environment = {"TMPDIR": str(self.temporary), "PKB_DEADLINE_SCALE": PATIENCE}
        self.referee = 0
        self.spares = 0
        """Worlds that are ready for the next runs."""
        self.spares_ready = asyncio.Event()
        self.samples: list[Sample] = []
        self.good_seconds: list[float] = []
        self.unexpected: Counter[str] = Counter()

    def listen(self, event: AnyEvent) -> None:
        if isinstance(event, Ready):
            if self.referee:
                self.unexpected["another referee"] += 1
            self.referee = event.pid
        elif isinstance(event, Finished):
            self.spares -= 1
        elif isinstance(event, WorldChanged) and event.role == "spare" and event.state == "ready":
            self.spares += 1
        (self.spares_ready.set if self.spares >= SPARES else self.spares_ready.clear)()

    async def run(self, count: int) -> None:
        order = [SOAK_KERNELS[number % len(SOAK_KERNELS)] for number in range(count)]
        random.Random(count).shuffle(order)
        async with Engine(self.paths, environment=self.environment) as engine:
            engine.subscribe(self.listen)
            await engine.start()
            if not is_jail(engine.jail):
                raise MachineError(
                    "without a jail kernels may leave files and processes behind, and nothing else would be counted",
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
        """Makes one run, then waits until all spares are ready, so that every sample is taken in the same state.

        Returns the seconds to the verdict.
        """
        choice = Choice(preset="tiny", world=2, device="cpu")
        request = request_of("1", choice, f"{kernel.name}.py", kernel.source, ROUNDS)
        started = time.monotonic()
        try:
            async with asyncio.timeout(GIVE_UP_S):
                try:
                    got: str = (await judge_to_end(engine, request)).result.verdict
                except (RunRefused, RunCancelled) as error:
                    got = type(error).__name__
                seconds = time.monotonic() - started
                if got != kernel.verdict:
                    self.unexpected[f"{kernel.name}: {got}"] += 1
                await self.spares_ready.wait()
        except TimeoutError:
            raise MachineError(f"nothing happened for {GIVE_UP_S:.0f} s", "run `pkb-arena doctor`") from None
        return seconds

    def sample(self) -> Sample:
        """The present values of the quantities in which a leak shows."""
        engine = os.getpid()
        own = [file for file in _files(self.paths.data.parent) if self.temporary not in file.parents]
        journals = sum(file.parent == self.paths.runs for file in own)
        return {
            "processes below the engine": len(tree(engine)) - 1,
            "descriptors of the engine": _descriptors(engine),
            "descriptors of the referee": _descriptors(self.referee),
            "files in temporary folders": len(_files(self.temporary)),
            "files in /dev/shm": len(_files(Path("/dev/shm"))),
            "files of the arena but journals": len(own) - journals,
            "resident memory of the engine": resident_mib(engine),
            "resident memory of the referee": resident_mib(self.referee),
        }


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


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
