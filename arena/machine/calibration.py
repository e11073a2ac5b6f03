"""Stored measurements of this machine: peaks for the roofline, differences of worlds, times of baseline variants."""

import datetime
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from arena.machine.facts import installed_version, this_machine
from arena.paths import make_folder, write_atomically, writing
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Calibrated, Microseconds, Setting, TransfersTimed, WorldOffsets

MOST_BYTES = 2**20
"""A longer file is damaged."""
Measured = TypeVar("Measured")


def write_stored(path: Path, measurement: object) -> None:
    """Stores a measurement. Raises FolderUnwritable."""
    make_folder(path.parent)
    with writing(path.parent):
        write_atomically(path, msgspec.json.encode(measurement))


def read_stored(path: Path, kind: type[Measured]) -> Measured | None:
    """Returns the stored measurement; None if there is none or the file is damaged."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MOST_BYTES), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What all stored measurements have. SUFFIX: of its file's name."""

    SUFFIX: ClassVar[str] = ""
    device: str
    world: int
    seconds: float
    date: str
    torch: str


Kept = TypeVar("Kept", bound=Stored)


class Calibration(Stored, frozen=True, kw_only=True):
    """One stored calibration. `Device.peaks` in sandbox.rank.devices.device describes the peaks."""

    peaks: dict[str, float]


def _file(kind: type[Stored], folder: Path, device: str, world: int) -> Path:
    return folder / f"{device}-{world}{kind.SUFFIX}.json"


def keep(kind: type[Kept], folder: Path, event: Calibrated | TransfersTimed) -> Kept:
    """Stores a measurement that was made now. Raises FolderUnwritable."""
    found = {name: getattr(event, name) for name in kind.__struct_fields__ if hasattr(event, name)}
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    kept = kind(**found, date=date, torch=installed_version("torch") or "")
    write_stored(_file(kind, folder, event.device, event.world), kept)
    return kept


def stored_as(kind: type[Kept], folder: Path, device: str, world: int) -> Kept | None:
    """Returns the stored measurement; None if there is none or the file is damaged."""
    return read_stored(_file(kind, folder, device, world), kind)


def peaks_for(folder: Path, setting: Setting) -> dict[str, float]:
    """Returns the stored peaks for this device and world size; empty if there are none or the file is damaged."""
    found = stored_as(Calibration, folder, setting.device, setting.world)
    return found.peaks if found is not None else {}


def in_units(name: str, value: float) -> tuple[float, str]:
    """Converts a peak to a number and unit for display. The name of the peak determines the unit."""
    if name.startswith("flops"):
        return value / 1e12, "TFLOP/s"
    if name.endswith("_us"):
        return value, "µs"
    return (value, "ms") if name.endswith("_ms") else (value / 1e9, "GB/s")


MOST_FILES, MOST_CLASSES, VALUES = 32, 12, 36
LEAST, MOST = -100.0, 0.0
"""Limits of a log mass (`sandbox.timing.random_effects.learn`)."""
PREFIX = "offsets-"
"""Of files with a history: how much worlds of identical code differ here. Only reference worlds of judged runs add to it.

No kernel can read or write the state folder. Only the events of this process's own referee change a file, never a journal.
A damaged file counts as no history.
"""


def _offsets_file(folder: Path, setting: Setting) -> Path:
    """One for each machine, driver, torch, set of devices and world size."""
    devices = kind_of(setting.device).lease_names(setting.world)
    key = sha256("\n".join([this_machine(setting.device).digest, *devices]).encode()).hexdigest()[:12]
    return folder / f"{PREFIX}{setting.device}-{setting.world}-{key}.json"


def offsets_for(folder: Path, setting: Setting) -> dict[str, list[float]]:
    """Returns the history for runs in this setting, by clock and class of call length; empty if there is none."""
    found = read_stored(_offsets_file(folder, setting), dict[str, dict[str, list[float]]]) or {}
    return _sound(found.get("masses", {}))


def _sound(masses: dict[str, list[float]]) -> dict[str, list[float]]:
    """Returns the log masses of tau that are complete and within limits, by clock and class of call length."""
    found = list(masses.items())[:MOST_CLASSES]
    return {name: mass for name, mass in found if len(mass) == VALUES and all(LEAST <= value <= MOST for value in mass)}


def keep_offsets(folder: Path, event: WorldOffsets) -> None:
    """Adds what a run's references have shown. The least recently changed files beyond MOST_FILES go.

    Raises:
        FolderUnwritable: it could not be stored.
    """
    masses = _sound(offsets_for(folder, event.setting) | event.masses)
    write_stored(_offsets_file(folder, event.setting), {"masses": masses})
    with suppress(OSError):
        files = sorted(folder.glob(f"{PREFIX}*.json"), key=lambda path: path.stat().st_mtime)
        for old in files[:-MOST_FILES]:
            old.unlink()


def _times_file(folder: Path, setting: Setting) -> Path:
    slug = Path(setting.problem_dir).name
    exact = sha256(msgspec.json.encode(msgspec.structs.replace(setting, problem_dir=""))).hexdigest()[:12]
    return folder / f"yardsticks-{slug}-{setting.device}-{setting.world}-{exact}.json"


def keep_times(folder: Path, setting: Setting, word: str, times: Microseconds) -> None:
    """Stores the times of one baseline variant in a setting. Raises FolderUnwritable."""
    write_stored(_times_file(folder, setting), times_for(folder, setting) | {word: times})


def times_for(folder: Path, setting: Setting) -> dict[str, Microseconds]:
    """Returns the stored times by variant; empty if none was measured in this setting or the file is damaged."""
    return read_stored(_times_file(folder, setting), dict[str, Microseconds]) or {}
