"""The baseline against itself: a judge that measures well never calls it faster."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from arena.bench.figure import Figure
from arena.engine import Engine
from arena.errors import MachineError
from arena.kernel_run import run_to_end
from arena.paths import Paths
from arena.run_request import RunRequest
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from sandbox.events import Interval
from sandbox.verdict import Verdict

REPETITIONS = 40


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """Problem 13, tiny, two CPU ranks: how often identical code was called faster, slower, even or too noisy.

    Raises:
        MachineError: a run did not pass.
    """
    count = repetitions or REPETITIONS
    problem = load_catalogue().find("13")
    setting = choose_setting(problem, Choice(preset="tiny", world=2, device="cpu"), Settings())
    outcomes: Counter[str] = Counter()
    intervals: list[Interval] = []
    with tempfile.TemporaryDirectory(prefix="pkb-bench-") as folder:
        own = Paths(Path(folder) / "config", Path(folder) / "data", Path(folder) / "state")
        async with Engine(own) as engine:
            for _ in range(count):
                run = RunRequest(problem=problem, setting=setting, kernel_name="baseline", source="")
                _, result = await run_to_end(engine, run)
                if result.verdict is not Verdict.PASS:
                    raise MachineError(f"the baseline did not pass: {result.detail}")
                outcomes[result.outcome] += 1
                if result.speedup is not None and result.speedup.call is not None:
                    intervals.append(result.speedup.call)
    least, most, inside = spread(intervals) if intervals else (0.0, 0.0, 0)
    medians = f"medians {least:.3f} to {most:.3f}" if intervals else "nothing was timed"
    return [
        Figure("same code called faster", outcomes["faster"], "", 0, f"of {count}; {medians}"),
        Figure("same code called slower", outcomes["slower"], "", None, f"of {count}"),
        Figure(
            "same code called even",
            outcomes["even"],
            "",
            None,
            f"of {count}; 1.0 inside the interval {inside} times",
        ),
        Figure("same code too noisy", outcomes["too noisy"], "", None, f"of {count}"),
    ]


def spread(intervals: Sequence[Interval]) -> tuple[float, float, int]:
    """Of some intervals of identical code: the smallest median, the largest one, and how many intervals hold 1."""
    medians = [interval.median for interval in intervals]
    return min(medians), max(medians), sum(interval.low <= 1.0 <= interval.high for interval in intervals)
