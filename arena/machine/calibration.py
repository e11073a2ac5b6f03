"""The stored calibration of this machine: peaks measured once, from which every verdict's roofline is computed."""

from pathlib import Path

import msgspec

from arena.machine.stored import made_today, read_stored, write_stored
from sandbox.protocol.events import Calibrated, Setting


class Calibration(msgspec.Struct, frozen=True):
    """One stored calibration. `sandbox.rank.calibration` describes the peaks."""

    device: str
    world: int
    peaks: dict[str, float]
    seconds: float
    date: str
    torch: str


def _file(folder: Path, device: str, world: int) -> Path:
    return folder / f"{device}-{world}.json"


def keep(folder: Path, event: Calibrated) -> Calibration:
    """Stores a calibration. Raises FolderUnwritable."""
    found = Calibration(
        device=event.device, world=event.world, peaks=event.peaks, seconds=event.seconds, **made_today()
    )
    write_stored(_file(folder, event.device, event.world), found)
    return found


def peaks_for(folder: Path, setting: Setting) -> dict[str, float]:
    """Returns the stored peaks for this device and world size; empty if there are none or the file is damaged."""
    found = read_stored(_file(folder, setting.device, setting.world), Calibration)
    return found.peaks if found is not None else {}


def in_units(name: str, value: float) -> tuple[float, str]:
    """Converts a peak to a number and unit for display. The name of the peak determines the unit."""
    if name.startswith("flops"):
        return value / 1e12, "TFLOP/s"
    if name.endswith("_us"):
        return value, "µs"
    return (value, "ms") if name.endswith("_ms") else (value / 1e9, "GB/s")
