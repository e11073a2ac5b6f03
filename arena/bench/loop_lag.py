"""How late the app's event loop is while two ranks run."""

from arena.bench.figure import Figure
from arena.bench.screen_measure import screen_figures
from arena.paths import Paths

LIMITS = {"p99_ms": 16.0}


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """
    Raises:
        MachineError: it could not be measured here.
    """
    found = await screen_figures("loop-lag", repetitions)
    return [Figure(f"loop-lag {name}", value, "ms", LIMITS.get(name)) for name, value in found.items()]
