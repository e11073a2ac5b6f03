"""Load, temperature and clocks of a world's GPUs, sampled twice a second in a thread."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arena.machine.facts import gpu_details
from sandbox.machine import nvml
from sandbox.machine.gpu_counters import traffic
from sandbox.machine.nvml import Gpu, NvmlMissing

PERIOD_S = 0.5
KEPT = 8
"""Number of readings kept for a small curve."""

_SM_CLOCK = 1
_GPU_SENSOR = 0
_REASONS = {0x20: "thermal", 0x40: "thermal", 0x80: "power brake", 0x04: "power cap"}
_HW_SLOWDOWN = 0x08


@dataclass(frozen=True)
class GpuReading:
    """The state of one GPU at one moment. None: the driver does not report the value."""

    used_mib: int
    total_mib: int
    busy: int | None = None
    """Percentage of the driver's last sampling window in which any kernel ran."""
    sm_mhz: int | None = None
    celsius: int | None = None
    watts: float | None = None
    nvlink_gb_s: float | None = None
    """GB/s received plus sent, averaged since the previous reading."""
    slowed: tuple[str, ...] = ()
    """Reasons for a lowered clock: "power cap", "thermal", "power brake", "hw slowdown"."""


Read = Callable[[], list[GpuReading]]


class WorldReader:
    """Reads the GPUs of a world in rank order. Not thread-safe. A reading takes milliseconds."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._gpus: Sequence[Gpu] = ()
        self._counted: dict[int, tuple[float, int]] = {}
        """By GPU index: time of the last NVLink reading, and its counter in bytes."""

    def __call__(self) -> list[GpuReading]:
        """Returns one reading per rank; empty without NVML or GPUs.

        Raises:
            NvmlMissing: the driver did not answer.
        """
        self._gpus = self._gpus or gpu_details()[: self._world]  # not in __init__: it may start up the driver
        return [self._read(gpu) for gpu in self._gpus]

    def _read(self, gpu: Gpu) -> GpuReading:
        device = nvml.handle(gpu.index)
        busy = nvml.ask("nvmlDeviceGetUtilizationRates", device)
        milliwatts = nvml.ask("nvmlDeviceGetPowerUsage", device)
        return GpuReading(
            used_mib=nvml.memory_used_mib(gpu),
            total_mib=gpu.memory_mib,
            busy=None if busy is None else int(busy.gpu),
            sm_mhz=nvml.ask("nvmlDeviceGetClockInfo", device, _SM_CLOCK),
            celsius=nvml.ask("nvmlDeviceGetTemperature", device, _GPU_SENSOR),
            watts=None if milliwatts is None else milliwatts / 1000.0,
            nvlink_gb_s=self._traffic(gpu),
            slowed=slowed_by(nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", device) or 0),
        )

    def _traffic(self, gpu: Gpu) -> float | None:
        """Returns GB/s since the previous reading; None for the first reading and without NVLink."""
        if (moved := traffic(gpu)) is None:
            return None
        now, total = time.monotonic(), sum(moved)
        before, counted = self._counted.get(gpu.index, (now, total))
        self._counted[gpu.index] = (now, total)
        # A counter that decreased was reset by another process: no rate follows from this reading.
        return (total - counted) / (now - before) / 1e9 if now > before and total >= counted else None


def slowed_by(reasons: int) -> tuple[str, ...]:
    """Names NVML's clock event reasons. Idle GPUs and clocks set by a user are not reported."""
    found = tuple(dict.fromkeys(word for bit, word in _REASONS.items() if reasons & bit))
    # The driver sets this bit together with a specific reason, if it has one.
    return ("hw slowdown",) if reasons & _HW_SLOWDOWN and not found else found


class GpuSampler:
    """Reads the GPUs in a thread from `start` to `stop`. Screens draw `samples`. It cannot be restarted."""

    def __init__(self, world: int, read: Read | None = None) -> None:
        """world: number of ranks, equal to the number of GPUs; read: replaces NVML in tests."""
        self.samples: tuple[list[GpuReading], ...] = ()
        """The last readings, newest last, each with one GPU per rank; empty until the first reading."""
        self.absent = False
        """True if there is nothing to read: no NVML, or no GPU."""
        self.trouble = ""
        """The driver's error that ended the readings; empty while there is none."""
        self._read = read or WorldReader(world)
        self._stopped = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def start(self) -> None:
        """Starts reading."""
        threading.Thread(target=self._run, name="gpu-sampler", daemon=True).start()

    def hold(self, held: bool) -> None:
        """Pauses (True) or resumes (False) reading, because of a measurement. A reading in progress is completed."""
        # NVML calls take driver locks that kernel launches take, too; whether this disturbs timing was not measured.
        # NVLink's counters continue, so the first rate afterwards is an average over the pause.
        if held:
            self._go.clear()
        else:
            self._go.set()

    def stop(self) -> None:
        """Ends the thread. Does not wait for a reading in progress."""
        self._stopped.set()
        self._go.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            if self._go.is_set():
                try:
                    reading = self._read()
                except NvmlMissing as missing:
                    self.trouble = str(missing)
                    return
                if not reading:
                    self.absent = True
                    return
                self.samples = (*self.samples, reading)[-KEPT:]
            if not self._stopped.wait(PERIOD_S):
                self._go.wait()
