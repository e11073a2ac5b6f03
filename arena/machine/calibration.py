"""The stored calibration of this machine: peaks measured once, from which every verdict's roofline is computed."""

import datetime
from pathlib import Path

import msgspec

from arena.machine.facts import installed_version
from arena.workspace.atomic_file import write_atomically
from sandbox.protocol.events import Calibrated, Setting


class Calibration(msgspec.Struct, frozen=True):
    """One stored measurement. `peaks` as sandbox.rank.calibration describes them."""

    device: str
    world: int
    peaks: dict[str, float]
    seconds: float
    date: str
    torch: str


def _file(folder: Path, device: str, world: int) -> Path:
    return folder / f"{device}-{world}.json"


def keep(folder: Path, event: Calibrated) -> Calibration:
    """Stores a calibration. Raises OSError when the folder cannot be written."""
    found = Calibration(
        device=event.device,
        world=event.world,
        peaks=event.peaks,
        seconds=event.seconds,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        torch=installed_version("torch") or "",
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(_file(folder, event.device, event.world), msgspec.json.encode(found))
    return found


def peaks_for(folder: Path, setting: Setting) -> dict[str, float]:
    """The stored peaks for this device and world size; empty where this machine was never calibrated, or the file is damaged."""
    try:
        return msgspec.json.decode(_file(folder, setting.device, setting.world).read_bytes(), type=Calibration).peaks
    except (OSError, ValueError):
        return {}


def in_units(name: str, value: float) -> tuple[float, str]:
    """A peak as people read it: its figure and unit, which the name of the peak tells."""
    if name.startswith("flops"):
        return value / 1e12, "TFLOP/s"
    if name.endswith("_us"):
        return value, "µs"
    return (value, "ms") if name.endswith("_ms") else (value / 1e9, "GB/s")
