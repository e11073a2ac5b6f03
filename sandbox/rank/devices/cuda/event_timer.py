"""Times of what is queued on the current stream, by the driver's own events: nothing of the arena's gate is in them."""

from typing import Any

import torch

_cuda: Any = torch.cuda  # events and _sleep carry no types
CYCLES = 20_000_000
"""Of torch.cuda._sleep, to find out how long a cycle is: about 10 ms."""


class CudaEventTimer:
    """A timer of one rank."""

    def __init__(self) -> None:
        self._first, self._last = (_cuda.Event(enable_timing=True) for _ in range(2))
        self._cycles_per_us = self._measure_cycles()

    def _measure_cycles(self) -> float:
        """Of torch.cuda._sleep, at the speed of a GPU that is busy."""
        _cuda._sleep(CYCLES)  # the clocks go up
        self.start()
        _cuda._sleep(CYCLES)
        self._last.record()
        self._last.synchronize()
        return CYCLES / self.us()

    def hold(self, us: float) -> None:
        """What is queued from here on waits so long on the device."""
        _cuda._sleep(int(us * self._cycles_per_us))

    def start(self) -> None:
        """Right before what is timed is queued."""
        self._first.record()

    def stop(self) -> bool:
        """Right after it. Whether all of it was queued before the first of it began."""
        self._last.record()
        return not self._first.query()

    def us(self) -> float:
        """Microseconds from start to stop, once the device has done everything."""
        microseconds: float = self._first.elapsed_time(self._last) * 1e3
        return microseconds
