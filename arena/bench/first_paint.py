"""From starting the app in a pseudo-terminal to its first paint."""

from arena.bench.figure import Figure
from arena.bench.screen_measure import screen_figure
from arena.paths import Paths

LIMIT_MS = 300.0


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """
    Raises:
        MachineError: it could not be measured here.
    """
    return await screen_figure("first-paint", repetitions, "first paint", "median", LIMIT_MS)
