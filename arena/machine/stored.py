"""Stored measurements of this machine: one file per kind, device and world size."""

import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from arena.machine.facts import installed_version
from arena.paths import make_folder, unwritable
from arena.workspace.atomic_file import write_atomically

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
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError):
        return None
