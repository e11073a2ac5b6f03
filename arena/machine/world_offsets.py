"""How much worlds of identical code differ on this machine: a history that only reference worlds of judged runs add to.

It lies in the state folder, which no kernel can read or write. Only the events of this process's own referee change it, never a
journal. A damaged file counts as no history.
"""

import hashlib
import math
from contextlib import suppress
from pathlib import Path

import msgspec

from arena.machine.calibration import read_stored, write_stored
from arena.machine.fingerprint import this_machine
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting, WorldOffsets

MOST_FILES, MOST_CLASSES, VALUES = 32, 12, 36
LEAST, MOST = -100.0, 0.0
"""Limits of a log mass (`sandbox.timing.random_effects.learn`)."""
PREFIX = "offsets-"


class StoredOffsets(msgspec.Struct, frozen=True):
    """The log masses of tau by clock and class of call length."""

    masses: dict[str, list[float]]

    @property
    def sound(self) -> dict[str, list[float]]:
        """Those that are complete and within limits."""
        found = list(self.masses.items())[:MOST_CLASSES]
        return {name: mass for name, mass in found if len(mass) == VALUES and all(map(_within, mass))}


def _within(value: float) -> bool:
    return math.isfinite(value) and LEAST <= value <= MOST


def _file(folder: Path, setting: Setting) -> Path:
    """One for each machine, driver, torch, set of devices and world size."""
    devices = kind_of(setting.device).lease_names(setting.world)
    key = hashlib.sha256("\n".join([this_machine(setting.device).digest, *devices]).encode()).hexdigest()[:12]
    return folder / f"{PREFIX}{setting.device}-{setting.world}-{key}.json"


def offsets_for(folder: Path, setting: Setting) -> dict[str, list[float]]:
    """Returns the history for runs in this setting, by clock and class of call length; empty if there is none."""
    found = read_stored(_file(folder, setting), StoredOffsets)
    return found.sound if found is not None else {}


def keep(folder: Path, event: WorldOffsets) -> None:
    """Adds what a run's references have shown. The least recently changed files beyond MOST_FILES go.

    Raises:
        FolderUnwritable: it could not be stored.
    """
    found = StoredOffsets(offsets_for(folder, event.setting) | event.masses)
    write_stored(_file(folder, event.setting), StoredOffsets(found.sound))
    with suppress(OSError):
        files = sorted(folder.glob(f"{PREFIX}*.json"), key=lambda path: path.stat().st_mtime)
        for old in files[:-MOST_FILES]:
            old.unlink()
