"""Reads a GPU's counters over a window through NVML: bytes over NVLink, the load of its units, and its power.

A counter of energy steps only at long intervals, so it is read often.
"""

import threading
import time
from collections.abc import Sequence

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


Step = tuple[float, float, int]
"""A step of a counter: the times of the last read before it and of the first after it on the monotonic clock, millijoules."""


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
                        self._steps[at].append((last[at][0], seen, now))
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
    (before, begin, low), (after, end, high) = steps[0], steps[-1]
    span, unsure = end - begin, max(begin - before, end - after)
    return GpuPower((high - low) / 1e3 / span, unsure / span)


NVLINK_TX, NVLINK_RX = 138, 139
"""NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX: KiB since the driver was loaded, without protocol."""
_LINK_SPEED, _LINKS = 90, 91
"""NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: MB/s of one link in one direction; NVML_FI_DEV_NVLINK_LINK_COUNT."""
_SM, _TENSOR, _DRAM = 2, 5, 10
"""NVML_GPM_METRIC_SM_UTIL, _ANY_TENSOR_UTIL, _DRAM_BW_UTIL: percent."""
_MEMORY_CLOCK = 2
SHORTEST_S = 0.1
"""Shortest time between two samples of GPM."""


class GpuCounted(msgspec.Struct, frozen=True):
    """The counters of one GPU over a window. None: the driver does not have this counter."""

    sent: int | None = None
    """Bytes over NVLink, without protocol."""
    received: int | None = None
    sm: float | None = None
    """Share of busy multiprocessors, from 0 to 1."""
    tensor: float | None = None
    """Share of the time with tensor operations."""
    dram: float | None = None
    """Used share of the memory bandwidth."""
    link_peak: float | None = None
    """Nominal bytes per second over all its links in one direction."""
    dram_peak: float | None = None
    """Nominal bytes per second of its memory, which `dram` is a share of."""
    missing: list[str] = []
    """Reasons for missing counters, one line each."""
    watts: float | None = None
    """Mean power, from the energy counter."""
    watts_error: float = 0.0
    """Share by which the power may be off."""


class GpuCounters:
    """Reads counters over one window at a time, from `begin` to `end`. A call takes milliseconds a GPU, or raises NvmlMissing."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus = gpus
        self._begun = 0.0
        self._traffic: list[tuple[int, int] | None] = []
        self._samples: list[nvml.GpmSample | str] = []
        self._energy: EnergyReader | None = None

    def begin(self) -> None:
        """Begins a window."""
        self._traffic = [traffic(gpu) for gpu in self._gpus]
        self._samples = [_sample(gpu) for gpu in self._gpus]
        self._energy = EnergyReader(self._gpus)
        self._energy.begin()
        self._begun = time.monotonic()

    def end(self) -> list[GpuCounted]:
        """Ends the window; returns the counters by GPU."""
        seconds = time.monotonic() - self._begun
        assert self._energy is not None, "begin comes first"
        powers = self._energy.end()
        samples = [_sample(gpu) for gpu in self._gpus]
        found = []
        for at, gpu in enumerate(self._gpus):
            missing: list[str] = []
            sent, received = _moved(self._traffic[at], traffic(gpu), missing)
            sm, tensor, dram = _shares(self._samples[at], samples[at], seconds, missing)
            link, memory = _link_peak(gpu), _memory_peak(gpu)
            if powers[at].missing:
                missing.append(powers[at].missing)
            watts, error = powers[at].watts, powers[at].error
            found.append(GpuCounted(sent, received, sm, tensor, dram, link, memory, missing, watts, error))
        self._samples = []
        return found


def traffic(gpu: Gpu) -> tuple[int, int] | None:
    """Bytes sent and received since the driver was loaded; None without NVLink."""
    kib = [nvml.field(gpu, number, nvml.ALL_LINKS) for number in (NVLINK_TX, NVLINK_RX)]
    return None if kib[0] is None or kib[1] is None else (kib[0] * 1024, kib[1] * 1024)


def _moved(
    before: tuple[int, int] | None, after: tuple[int, int] | None, missing: list[str]
) -> tuple[int | None, int | None]:
    if before is None or after is None:
        missing.append("no bytes over NVLink: the driver counts none for this GPU")
        return None, None
    if after[0] < before[0] or after[1] < before[1]:
        missing.append("no bytes over NVLink: the driver's counters were reset meanwhile")
        return None, None
    return after[0] - before[0], after[1] - before[1]


def _sample(gpu: Gpu) -> nvml.GpmSample | str:
    """A sample, or the reason why there is none."""
    try:
        return nvml.gpm_sample(gpu) or "the driver has no such counters for this GPU or this user"
    except NvmlMissing as missing:
        return str(missing)


def _shares(
    first: nvml.GpmSample | str, second: nvml.GpmSample | str, seconds: float, missing: list[str]
) -> list[float | None]:
    """Busy multiprocessors, tensor cores and memory between two samples, from 0 to 1."""
    found: list[float | None] = [None, None, None]
    why = ""
    if isinstance(first, str):
        why = first
    elif isinstance(second, str):
        why = second
    elif seconds < SHORTEST_S:
        why = f"the calls took {seconds * 1e3:.0f} ms, and samples must be {SHORTEST_S * 1e3:.0f} ms apart"
    else:
        try:
            found = nvml.gpm_metrics(first, second, (_SM, _TENSOR, _DRAM))
        except NvmlMissing as refused:
            why = str(refused)
        else:
            why = "the driver has no value" if None in found else ""
    if why:
        missing.append(f"no utilisation of SMs, tensor cores and memory (GPM): {why}")
    return [None if percent is None else percent / 100.0 for percent in found]


def _link_peak(gpu: Gpu) -> float | None:
    speed, links = nvml.field(gpu, _LINK_SPEED), nvml.field(gpu, _LINKS)
    return speed * 1e6 * links if speed and links else None


def _memory_peak(gpu: Gpu) -> float | None:
    device = nvml.handle(gpu.index)
    mhz = nvml.ask("nvmlDeviceGetMaxClockInfo", device, _MEMORY_CLOCK)
    bits = nvml.ask("nvmlDeviceGetMemoryBusWidth", device)
    return 2 * mhz * 1e6 * bits / 8 if mhz and bits else None  # two transfers a clock
