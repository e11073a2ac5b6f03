"""Reads the energy counters of GPUs while they work. A counter steps only at long intervals, so it is read often."""

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sandbox.machine import nvml
from sandbox.machine.nvml import Gpu, NvmlMissing

READ_S = 0.002
"""Seconds between two reads."""
LEAST_STEPS = 3
"""Steps of a counter that a figure needs: power is the energy between the first and the last, over the time between them."""


class GpuPower(msgspec.Struct, frozen=True):
    """The power of one GPU over a window."""

    watts: float | None = None
    error: float = 0.0
    """Share by which it may be off, because a step shows only at the next read."""
    missing: str = ""
    """Why there is no power; empty if there is."""


class Step(NamedTuple):
    """A step of a counter. Seconds on the monotonic clock."""

    after: float
    """Time of the last read before it."""
    at: float
    """Time of the first read after it."""
    millijoules: int


class EnergyReader:
    """Reads the counters in a thread, from `begin` to `end`. A read takes up to 5 ms a GPU."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus = gpus
        self._steps: list[list[Step]] = [[] for _ in gpus]
        self._why = [""] * len(gpus)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._began = 0.0

    def begin(self) -> None:
        """Begins the window."""
        self._began = time.monotonic()
        self._thread.start()

    def end(self) -> list[GpuPower]:
        """Ends the window. Returns the power by GPU."""
        self._ends.set()
        self._thread.join()
        seconds = time.monotonic() - self._began
        return [power(steps, seconds, why) for steps, why in zip(self._steps, self._why, strict=True)]

    def _read(self) -> None:
        try:
            last = [(time.monotonic(), _millijoules(gpu)) for gpu in self._gpus]
            self._why = ["" if read is not None else "the driver has no counter for this GPU" for _, read in last]
            while not self._ends.wait(READ_S):
                for at, gpu in enumerate(self._gpus):
                    now = _millijoules(gpu)
                    seen = time.monotonic()
                    if now is not None and now != last[at][1]:
                        self._steps[at].append(Step(last[at][0], seen, now))
                    last[at] = (seen, now)
        except NvmlMissing as missing:
            self._why = [str(missing)] * len(self._gpus)


def _millijoules(gpu: Gpu) -> int | None:
    """The energy since the driver was loaded; None without a counter."""
    found = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", nvml.handle(gpu.index))
    return None if found is None else int(found)


def power(steps: Sequence[Step], seconds: float, why: str = "") -> GpuPower:
    """The power between the first and the last step of a counter.

    seconds: of the window; why: the reason if the counter cannot be read.
    """
    if why:
        return GpuPower(missing=f"no energy: {why}")
    if len(steps) < LEAST_STEPS:
        times = "once" if len(steps) == 1 else f"{len(steps)} times"
        return GpuPower(missing=f"no energy: {seconds:.2f} s are too short, the counter stepped {times}")
    first, last = steps[0], steps[-1]
    span = last.at - first.at
    unsure = max(first.at - first.after, last.at - last.after)
    return GpuPower((last.millijoules - first.millijoules) / 1e3 / span, unsure / span)
