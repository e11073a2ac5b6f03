"""The delay of the event loop, sampled from inside, and waiting in it for conditions of a measurement."""

import asyncio
import time
from collections.abc import Callable

GIVE_UP_S = 90.0
SAMPLE_S = 0.005
_LOOK_S = 0.02


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: it did not come true within 90 s.
    """
    async with asyncio.timeout(GIVE_UP_S):
        while not condition():
            await asyncio.sleep(_LOOK_S)


async def lag_while(condition: Callable[[], bool]) -> list[float]:
    """Seconds that the loop woke up later than asked, one sample after the other for as long as the condition holds."""
    late = []
    while condition():
        asked = time.monotonic() + SAMPLE_S
        await asyncio.sleep(SAMPLE_S)
        late.append(time.monotonic() - asked)
    return late
