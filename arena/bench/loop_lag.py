"""How late the app's event loop wakes up while two ranks run."""

from arena.bench.figure import Figure
from arena.bench.screen_measure import screen_figure
from arena.paths import Paths

LIMIT_MS = 16.0


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """
    Raises:
        MachineError: it could not be measured here.
    """
    return await screen_figure("loop-lag", repetitions, "event loop late", "p99", LIMIT_MS)
