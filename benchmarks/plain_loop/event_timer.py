"""Times work on the current stream with the driver's events, independent of the arena's gate."""

from typing import Any

import torch

_cuda: Any = torch.cuda  # events and _sleep carry no types
CYCLES = 20_000_000
"""Cycles of torch.cuda._sleep that measure the length of a cycle: about 10 ms."""


class CudaEventTimer:
    """A timer of one rank."""

    def __init__(self) -> None:
        self._first, self._last = (_cuda.Event(enable_timing=True) for _ in range(2))
        self._cycles_per_us = self._measure_cycles()

    def _measure_cycles(self) -> float:
        """Cycles of torch.cuda._sleep per microsecond, on a busy GPU."""
        _cuda._sleep(CYCLES)  # raises the GPU's clocks
        self.start()
        _cuda._sleep(CYCLES)
        self._last.record()
        self._last.synchronize()
        return CYCLES / self.us()

    def hold(self, us: float) -> None:
        """Delays work that is queued from now on by `us`."""
        _cuda._sleep(int(us * self._cycles_per_us))

    def start(self) -> None:
        """Marks the start; call it right before the timed work is queued."""
        self._first.record()

    def stop(self) -> bool:
        """Marks the end; returns whether all timed work was queued before it began."""
        self._last.record()
        return not self._first.query()

    def us(self) -> float:
        """Microseconds from start to stop. Waits for the device."""
        microseconds: float = self._first.elapsed_time(self._last) * 1e3
        return microseconds
