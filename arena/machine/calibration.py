"""The stored calibration of this machine: peaks measured once, from which every verdict's roofline is computed."""

import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from arena.machine.facts import installed_version
from arena.paths import make_folder, unwritable, write_atomically
from sandbox.protocol.events import Calibrated, Setting

MOST_BYTES = 2**20
"""A longer file is damaged."""
Measured = TypeVar("Measured", bound=msgspec.Struct)


def made_today() -> dict[str, str]:
    """Returns the fields `date` and `torch` for a measurement made now."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": date, "torch": installed_version("torch") or ""}


def write_stored(path: Path, measurement: msgspec.Struct) -> None:
    """Stores a measurement. Raises FolderUnwritable."""
    make_folder(path.parent)
    try:
        write_atomically(path, msgspec.json.encode(measurement))
    except OSError as error:
        raise unwritable(path.parent, error) from None


def read_stored(path: Path, kind: type[Measured]) -> Measured | None:
    """Returns the stored measurement; None if there is none or the file is damaged."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MOST_BYTES), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


class Calibration(msgspec.Struct, frozen=True):
    """One stored calibration. `Device.peaks` in sandbox.rank.devices.device describes the peaks."""

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
