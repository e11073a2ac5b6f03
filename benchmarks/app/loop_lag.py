"""Samples the delay of the event loop from inside, and waits in the loop for conditions."""

import asyncio
import time
from collections.abc import Callable

GIVE_UP_S = 90.0
SAMPLE_S = 0.005
_LOOK_S = 0.02


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: it was not met within 90 s.
    """
    async with asyncio.timeout(GIVE_UP_S):
        while not condition():
            await asyncio.sleep(_LOOK_S)


async def lag_while(condition: Callable[[], bool]) -> list[float]:
    """Samples of the seconds by which the loop woke up late, taken one after another while the condition holds."""
    late = []
    while condition():
        asked = time.monotonic() + SAMPLE_S
        await asyncio.sleep(SAMPLE_S)
        late.append(time.monotonic() - asked)
    return late
