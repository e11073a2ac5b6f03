"""How late the app's event loop wakes up while a model writes a thousand tokens a second into a duel's pane."""

from arena.bench.figure import Figure
from arena.bench.screen_measure import screen_figure
from arena.paths import Paths

LIMIT_MS = 50.0


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """repetitions: seconds that are looked at.

    Raises:
        MachineError: it could not be measured here, or fewer tokens arrived.
    """
    return await screen_figure("tokens", repetitions, "event loop late", "p99", LIMIT_MS)
