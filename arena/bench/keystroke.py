"""From a key to what it draws, in a kernel of 1000 lines."""

from arena.bench.figure import Figure
from arena.bench.screen_measure import screen_figure
from arena.paths import Paths

LIMIT_MS = 20.0


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """
    Raises:
        MachineError: it could not be measured here.
    """
    return await screen_figure("keystroke", repetitions, "key to screen", "median", LIMIT_MS)
