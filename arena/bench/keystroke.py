"""From a key to the repainted editor, in a kernel of 1000 lines."""

from arena.bench.figure import Figure
from arena.bench.screen_measure import screen_figures
from arena.paths import Paths

LIMITS = {"median_ms": 20.0}


async def measure(paths: Paths, repetitions: int | None) -> list[Figure]:
    """
    Raises:
        MachineError: it could not be measured here.
    """
    found = await screen_figures("keystroke", repetitions)
    return [Figure(f"keystroke {name}", value, "ms", LIMITS.get(name)) for name, value in found.items()]
