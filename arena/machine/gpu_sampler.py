"""Load, temperature and clocks of a world's GPUs, sampled twice a second in a thread."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arena.machine.facts import gpu_details
from sandbox.machine import nvml
from sandbox.machine.gpu_counters import NVLINK_RX, NVLINK_TX
from sandbox.machine.nvml import Gpu, NvmlMissing

PERIOD_S = 0.5
KEPT = 8
"""Readings kept, newest last: what a small curve shows."""

_SM_CLOCK = 1
_GPU_SENSOR = 0
_REASONS = {0x20: "thermal", 0x40: "thermal", 0x80: "power brake", 0x04: "power cap"}
_HW_SLOWDOWN = 0x08


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment; None is what its driver does not say."""

    used_mib: int
    total_mib: int
    busy: int | None = None
    """Percent of the driver's last window in which some kernel ran."""
    sm_mhz: int | None = None
    celsius: int | None = None
    watts: float | None = None
    nvlink_gb_s: float | None = None
    """Received and sent together, the mean since the reading before."""
    slowed: tuple[str, ...] = ()
    """Reason of a lowered clock: "power cap", "thermal", "power brake", "hw slowdown"."""


Read = Callable[[], list[GpuReading]]


class WorldReader:
    """Reads the GPUs of a world, rank by rank. For one thread; milliseconds a reading."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._gpus: Sequence[Gpu] = ()
        self._counted: dict[int, tuple[float, int]] = {}
        """When each GPU's NVLink traffic was last read, and its KiB until then."""

    def __call__(self) -> list[GpuReading]:
        """One reading a rank; none without NVML or GPUs.

        Raises:
            NvmlMissing: the driver did not answer.
        """
        self._gpus = self._gpus or gpu_details()[: self._world]  # here, because the first call may wake a driver
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
        """GB/s since the reading before; None at the first, and without NVLink."""
        sent = nvml.field(gpu, NVLINK_TX, nvml.ALL_LINKS)
        received = nvml.field(gpu, NVLINK_RX, nvml.ALL_LINKS)
        if sent is None or received is None:
            return None
        now, total = time.monotonic(), sent + received
        before, counted = self._counted.get(gpu.index, (now, total))
        self._counted[gpu.index] = (now, total)
        # A counter that went back was reset by somebody: that reading says nothing.
        return (total - counted) * 1024 / (now - before) / 1e9 if now > before and total >= counted else None


def slowed_by(reasons: int) -> tuple[str, ...]:
    """NVML's clock event reasons in words; idling and clocks that somebody set are none."""
    found = tuple(dict.fromkeys(word for bit, word in _REASONS.items() if reasons & bit))
    # The driver sets this bit beside the reason it knows.
    return ("hw slowdown",) if reasons & _HW_SLOWDOWN and not found else found


class GpuSampler:
    """Reads in the background from `start` to `stop`; `samples` is what screens draw. One that was stopped stays so."""

    def __init__(self, world: int, read: Read | None = None) -> None:
        """world: ranks, and so GPUs. `read` takes the place of NVML in tests."""
        self.samples: tuple[list[GpuReading], ...] = ()
        """The last readings, newest last, each with one GPU a rank; empty until the first."""
        self.absent = False
        """There is nothing to read: no NVML, or no GPU."""
        self.trouble = ""
        """The reason when readings have ended: the driver stopped answering."""
        self._read = read or WorldReader(world)
        self._stopped = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def start(self) -> None:
        """Begins to read."""
        threading.Thread(target=self._run, name="gpu-sampler", daemon=True).start()

    def hold(self, held: bool) -> None:
        """Stops to read for as long as something is timed; a reading under way is finished."""
        # NVML's calls take locks in the driver that launches take, too; that this is harmless was not measured.
        # NVLink's counters go on meanwhile, so the first reading afterwards is the mean over the pause.
        if held:
            self._go.clear()
        else:
            self._go.set()

    def stop(self) -> None:
        """Ends the thread; does not wait for a reading under way."""
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
