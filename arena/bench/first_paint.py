"""From starting the app in a real pseudo-terminal to its first paint."""

from arena.bench.figure import Figure
from arena.bench.screen_measure import screen_figures
from arena.paths import Paths

LIMITS = {"median_ms": 300.0}


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """
    Raises:
        MachineError: it could not be measured here.
    """
    found = await screen_figures("first-paint", repetitions)
    return [Figure(f"first-paint {name}", value, "ms", LIMITS.get(name)) for name, value in found.items()]
